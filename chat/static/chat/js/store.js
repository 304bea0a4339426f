/** The turns of the open conversation and the events applied to them. Pure: no DOM, no socket. @module */

/** @import { LiveTurn, Turn, TurnEvent } from './types' */

/** @typedef {'applied' | 'old' | 'gap' | 'unknown'} Applied */

const WATCH_LIMIT = 50;
const FROM_THE_START_MS = 3000;
/** The stage that each state of the server belongs to. @type {Record<string, string>} */
const STAGE = { submitted: 'submitted', queued: 'queued', node: 'queued', loading: 'loading', prefill: 'loading' };

/** A turn that has not ended starts at event 0: the events rebuild its text, so nothing can be missing or twice. @param {Turn} turn @returns {LiveTurn} */
function fresh(turn) {
  const ended = turn.state === 'ended';
  return { ...turn, answer: ended ? turn.answer : '', reasoning: ended ? turn.reasoning : '', seen: ended ? turn.events_end : 0, fence: 0, step: null, marks: { start: startOf(turn) }, fallback: null };
}

/** Now, when the question has just been asked; else 0: how long its steps took is not known here. @param {Turn} turn */
const startOf = (turn) => (Math.abs(Date.now() - Date.parse(turn.created_at)) < FROM_THE_START_MS ? Date.now() : 0);

/** Note when the turn first reached `stage`. @param {LiveTurn} turn @param {string | undefined} stage */
function mark(turn, stage) {
  if (stage) turn.marks[stage] ??= Date.now();
}

export class Store {
  /** @param {Turn[]} turns */
  constructor(turns) {
    /** @type {Map<string, LiveTurn>} */
    this.turns = new Map(turns.map((turn) => [turn.id, fresh(turn)]));
  }

  /** Take over what the server says of a turn. Text that is arriving is kept. @param {Turn} turn @returns {LiveTurn} */
  merge(turn) {
    const known = this.turns.get(turn.id);
    const next = fresh(turn);
    if (known) {
      next.fallback = known.fallback;
      next.marks = known.marks;
      if (turn.state !== 'ended') {
        if (known.state === 'ended') return known;
        Object.assign(next, { answer: known.answer, reasoning: known.reasoning, seen: known.seen, fence: known.fence, step: known.step, route: known.route ?? next.route, tier: known.tier || next.tier, model: known.model || next.model, model_label: known.model_label || next.model_label });
      } else {
        next.seen = Math.max(known.seen, next.seen);
      }
    }
    this.turns.set(turn.id, next);
    return next;
  }

  /** Apply one event, in order and once. @param {TurnEvent} event @returns {Applied} */
  apply(event) {
    const turn = this.turns.get(event.turn);
    if (!turn) return 'unknown';
    if (turn.state === 'ended' || event.fence < turn.fence) return 'old';
    if (event.fence > turn.fence) {
      // Another runner took the turn over and starts it again.
      if (turn.fence) Object.assign(turn, { seen: 0, answer: '', reasoning: '', step: null, marks: { start: turn.marks.start ?? 0 }, fallback: null });
      turn.fence = event.fence;
    }
    if (event.seq <= turn.seen) return 'old';
    if (event.seq > turn.seen + 1) return 'gap';
    turn.seen = event.seq;
    this.#change(turn, event);
    return 'applied';
  }

  /** @param {LiveTurn} turn @param {TurnEvent} event */
  #change(turn, event) {
    if (turn.state === 'queued') turn.state = 'running';
    switch (event.kind) {
      case 'route':
        turn.route = event.route;
        mark(turn, 'routed');
        break;
      case 'attempt':
        if (!turn.answer) turn.reasoning = '';
        Object.assign(turn, { attempts: event.attempt, tier: event.tier, model: event.model, model_label: event.model_label, step: null, marks: { start: turn.marks.start ?? 0, routed: turn.marks.routed ?? Date.now() } });
        break;
      case 'state':
        turn.step = { state: event.state, detail: event.detail };
        mark(turn, STAGE[event.state]);
        break;
      case 'delta':
        turn.answer += event.text;
        mark(turn, 'first');
        break;
      case 'reasoning':
        turn.reasoning += event.text;
        mark(turn, 'first');
        break;
      case 'fallback':
        turn.fallback = { from: event.from, to: event.to, why: event.why };
        break;
      case 'done':
        this.#end(turn, event);
        break;
    }
  }

  /** @param {LiveTurn} turn @param {Extract<TurnEvent, { kind: 'done' }>} event */
  #end(turn, event) {
    Object.assign(turn, event.stored);
    turn.outcome = event.outcome;
    turn.state = 'ended';
    turn.step = null;
    turn.error ??= event.error ?? null;
  }

  /** Return the turn that has not ended, the newest first. @returns {LiveTurn | undefined} */
  running() {
    return [...this.turns.values()].reverse().find((turn) => turn.state !== 'ended');
  }

  /** Return what `watch` says: how far each turn that is being answered has come, and when the newest one was made. */
  watched() {
    const all = [...this.turns.values()];
    const active = all.filter((turn) => turn.state !== 'ended').slice(-WATCH_LIMIT);
    const after = all.reduce((/** @type {string | null} */ newest, turn) => (newest && newest > turn.created_at ? newest : turn.created_at), null);
    return { turns: Object.fromEntries(active.map((turn) => [turn.id, turn.seen])), after };
  }
}
