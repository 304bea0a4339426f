/** One question and its answers: the two articles of a position, their versions, notes, receipt and buttons. @module */
import { AnswerRenderer, renderWhole } from './answer.js';
import { TIER_LABEL, copyText, h, icon, iconButton, say, tierWord } from './dom.js';
import { dress, finishLook } from './enhance.js';
import { clock, count, money, seconds, wordCount } from './format.js';
import { drawLife, hasLife } from './life.js';
import { failNote, partNote } from './notes.js';

/** @import { LiveTurn, TierChoice, TierName } from './types' */

/**
 * @typedef {object} Actions what a place asks of the page
 * @property {(turn: LiveTurn, tier: TierChoice, model: string) => void} again
 * @property {(turn: LiveTurn) => void} goOn
 * @property {(tier: TierName) => { usable: boolean, why: string, note: string }} tierState
 * @property {() => boolean} busy
 */

/** @type {Record<string, string>} */
const STEP = { submitted: 'Submitted', queued: 'Queued', node: 'On a node', loading: 'Model loading', prefill: 'Reading the question' };

/** Draws what is off screen only when it comes near. */
const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    nearby.unobserve(entry.target);
    finishLook(entry.target);
  }
}, { rootMargin: '600px 0px' });

export class Place {
  /** @param {LiveTurn} turn @param {Actions} actions */
  constructor(turn, actions) {
    this.actions = actions;
    this.position = turn.position;
    /** @type {LiveTurn[]} */
    this.versions = [turn];
    this.turn = turn;
    /** @type {AnswerRenderer | null} */
    this.renderer = null;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.ticking = undefined;
    const id = `q${turn.position}`;
    this.bubble = h('div', { class: 'bubble', dir: 'auto' });
    this.ask = h('article', { class: 'turn ask', 'aria-labelledby': `${id}-h`, id, tabindex: '-1' }, h('h2', { class: 'vh', id: `${id}-h`, text: 'You asked' }), this.bubble,
      h('div', { class: 'acts' }, iconButton('copy', 'Copy question', { on: { click: (/** @type {Event} */ e) => copyText(this.turn.question, /** @type {HTMLElement} */ (e.currentTarget)) } })));
    this.byline = h('h2', { class: 'byline', id: `${id}-b` });
    this.life = h('div', { class: 'life', hidden: true });
    this.wait = h('p', { class: 'wait' });
    this.reason = h('details', { class: 'reason', hidden: true }, h('summary', {}, icon('down', 'i-s i-turn'), ' ', h('span', { text: 'Reasoning' })), h('div', { class: 'reason-text', dir: 'auto' }));
    this.prose = h('div', { class: 'prose', dir: 'auto' });
    this.foot = h('div', { class: 'answer-foot' });
    this.answer = h('article', { class: 'turn answer', 'aria-labelledby': `${id}-b` }, this.byline, this.life, this.wait, this.reason, this.prose, this.foot);
    this.show(turn, false);
  }

  /** Take another answer to the same question, and show it. @param {LiveTurn} turn */
  add(turn) {
    const at = this.versions.findIndex((v) => v.id === turn.id);
    if (at >= 0) this.versions[at] = turn;
    else this.versions.push(turn);
    this.versions.sort((a, b) => a.version - b.version);
    if (at < 0 || this.turn.id === turn.id) this.show(turn, false);
    else this.drawFoot(false);
  }

  /** @param {LiveTurn} turn @param {boolean} live announce failures */
  show(turn, live) {
    this.turn = turn;
    this.renderer = null;
    this.prose.replaceChildren();
    this.bubble.textContent = turn.question;
    this.draw(live);
  }

  /** Draw what changed. Called at most once per frame while an answer arrives. @param {boolean} live */
  draw(live) {
    const { turn } = this;
    const running = turn.state !== 'ended';
    this.answer.setAttribute('aria-busy', String(running));
    if (!running) this.answer.removeAttribute('aria-busy');
    this.drawByline(running);
    this.drawWait(running);
    this.drawReasoning(running);
    if (running) {
      this.renderer ??= new AnswerRenderer(this.prose);
      this.prose.className = `prose is-${turn.tier || 'auto'}`;
      if (turn.answer) this.renderer.update(turn.answer);
    } else if (this.renderer) {
      this.renderer.finish(turn.answer);
      this.renderer = null;
    } else {
      renderWhole(this.prose, turn.answer);
      dress(this.prose);
      nearby.observe(this.answer);
    }
    this.prose.hidden = !turn.answer;
    this.drawFoot(live);
  }

  /** @param {boolean} running */
  drawByline(running) {
    const { turn } = this;
    const tier = turn.tier || turn.route?.tier || (turn.tier_choice === 'auto' ? 'auto' : turn.tier_choice);
    const verb = running ? (turn.answer ? ' is answering with ' : ' is preparing an answer with ') : turn.outcome === 'complete' ? ' answered with ' : turn.answer ? ' answered in part with ' : ' gave no answer with ';
    const model = turn.model_label || turn.route?.model_label || '';
    const instead = turn.fallback?.from ?? (turn.route && turn.tier && turn.route.tier !== turn.tier ? turn.route.tier : null);
    const note = tier === 'auto' ? '' : this.actions.tierState(tier).note;
    const aside = [instead && turn.answer ? `in place of ${TIER_LABEL[instead]}` : '', !running && !turn.answer && turn.outcome !== 'complete' ? 'no answer' : ''].filter(Boolean).join(', ');
    this.byline.replaceChildren(tierWord(tier), ...(model ? [h('span', { class: 'vh', text: verb }), h('span', { class: 'model', title: note || null, text: model })] : []), ...(aside ? [h('span', { class: 'aside', text: aside })] : []));
  }

  /** @param {boolean} running */
  drawWait(running) {
    clearInterval(this.ticking);
    const life = hasLife(this.turn, running);
    this.life.hidden = !life;
    this.wait.hidden = !running || Boolean(this.turn.answer) || life;
    if (life) {
      const draw = () => drawLife(this.life, this.turn);
      draw();
      if (!this.turn.answer) this.ticking = setInterval(draw, 1000);
    }
    if (this.wait.hidden) return;
    const words = h('span', { text: this.waitWords() });
    const time = h('bdi', { class: 'num' });
    const since = Date.parse(this.turn.created_at) || Date.now();
    const tick = () => { const s = Math.floor((Date.now() - since) / 1000); time.textContent = s >= 2 && s < 36_000 ? `${s} s` : ''; };
    tick();
    this.ticking = setInterval(tick, 1000);
    this.wait.replaceChildren(h('span', { class: 'dot', 'aria-hidden': 'true' }), words, ' ', time);
  }

  waitWords() {
    const { turn } = this;
    if (turn.fallback && !turn.step) return `${TIER_LABEL[turn.fallback.from]} could not answer: ${turn.fallback.why.replace(/\.$/, '')}. ${TIER_LABEL[turn.fallback.to]} answers in its place`;
    if (turn.step) return [STEP[turn.step.state] ?? turn.step.state, turn.step.detail].filter(Boolean).join(': ');
    if (turn.reasoning) return 'Thinking';
    if (turn.tier) return `${TIER_LABEL[turn.tier]} is reading the question`;
    if (turn.route) return `${TIER_LABEL[turn.route.tier]} will answer`;
    return turn.tier_choice === 'auto' ? 'Choosing who answers' : 'Sent';
  }

  /** @param {boolean} running */
  drawReasoning(running) {
    const { reasoning, answer } = this.turn;
    this.reason.hidden = !reasoning;
    if (!reasoning) return;
    const box = /** @type {HTMLElement} */ (this.reason.lastElementChild);
    const old = box.textContent ?? '';
    if (reasoning.startsWith(old) && box.firstChild instanceof Text) box.firstChild.appendData(reasoning.slice(old.length));
    else box.textContent = reasoning;
    const word = this.reason.querySelector('summary span');
    if (word) word.textContent = running && !answer ? 'Reasoning, arriving' : `Reasoning, ${count(wordCount(reasoning))} words`;
  }

  /** @param {boolean} live */
  drawFoot(live) {
    const { turn } = this;
    if (turn.state !== 'ended') { this.foot.replaceChildren(...this.fallbackLine(), ...this.versionLine(false)); return; }
    const partial = ['interrupted', 'cancelled', 'damaged'].includes(turn.outcome);
    /** @type {Node[]} */
    const parts = [...this.fallbackLine()];
    if (partial && turn.answer) parts.push(h('p', { class: 'cutmark', text: `Stopped here${turn.ended_at ? ` at ${clock(turn.ended_at)}` : ''}, after ${count(wordCount(turn.answer))} words` }));
    if (turn.outcome === 'failed') parts.push(failNote(turn, this.actions, live));
    else if (partial) parts.push(partNote(turn, this.actions));
    const receipt = this.receipt();
    if (receipt) parts.push(receipt);
    parts.push(...this.versionLine(true));
    this.foot.replaceChildren(...parts);
  }

  fallbackLine() {
    const { fallback, answer, state } = this.turn;
    if (!fallback || (!answer && state !== 'ended')) return [];
    return [h('p', { class: 'muted small', text: `${TIER_LABEL[fallback.from]} could not answer: ${fallback.why.replace(/\.$/, '')}. ${TIER_LABEL[fallback.to]} answered in its place.` })];
  }

  receipt() {
    const { turn } = this;
    if (!turn.route && !turn.tokens_in && !turn.total_ms) return null;
    const line = h('p', { class: 'receipt' });
    if (turn.tokens_in || turn.tokens_out) line.append(h('span', { text: `${turn.tokens_estimated ? 'about ' : ''}${count(turn.tokens_in)} tokens in, ${count(turn.tokens_out)} out` }));
    if (turn.total_ms !== null) line.append(h('span', { text: turn.first_text_ms !== null && turn.answer ? `${seconds(turn.first_text_ms)} to first text, ${seconds(turn.total_ms)} in all` : seconds(turn.total_ms) }));
    const free = turn.tier === 'hpc' ? 'free on campus' : 'free';
    line.append(h('span', { class: 'cost', text: turn.cost_micro ? money(turn.cost_micro) : `$0.0000 · ${turn.answer ? free : 'nothing charged'}` }));
    if (turn.route) {
      const tier = TIER_LABEL[turn.tier || turn.route.tier];
      line.append(h('button', { class: 'linkish push', type: 'button', popovertarget: 'why', 'aria-haspopup': 'dialog', 'data-turn': turn.id, text: `Why ${tier}?` }));
    }
    return line;
  }

  /** @param {boolean} ended */
  versionLine(ended) {
    const { turn } = this;
    const at = this.versions.findIndex((v) => v.id === turn.id);
    if (!ended && this.versions.length < 2) return [];
    const row = h('div', { class: 'acts' });
    if (ended && turn.answer) row.append(iconButton('copy', 'Copy answer', { on: { click: (/** @type {Event} */ e) => copyText(turn.answer, /** @type {HTMLElement} */ (e.currentTarget)) } }));
    if (ended && turn.outcome === 'complete') row.append(iconButton('redo', 'Answer again', { on: { click: () => this.actions.again(turn, turn.tier_choice, turn.model_choice) } }));
    if (this.versions.length > 1) {
      row.append(h('span', { class: 'vers', role: 'group', 'aria-label': 'Versions of this answer' },
        iconButton('left', 'Previous version', { disabled: at === 0, 'data-step': '-1', on: { click: () => this.step(-1) } }, 'i-dir'),
        h('span', { text: `${at + 1}/${this.versions.length}` }),
        iconButton('right', 'Next version', { disabled: at === this.versions.length - 1, 'data-step': '1', on: { click: () => this.step(1) } }, 'i-dir')));
    }
    return row.childElementCount ? [row] : [];
  }

  /** Show the version before or after. @param {number} by */
  step(by) {
    const at = this.versions.findIndex((v) => v.id === this.turn.id) + by;
    const next = this.versions[at];
    if (!next) return;
    this.show(next, false);
    const same = /** @type {HTMLButtonElement | null} */ (this.foot.querySelector(`[data-step="${by}"]`));
    const other = /** @type {HTMLButtonElement | null} */ (this.foot.querySelector(`[data-step="${-by}"]`));
    (same?.disabled ? other : same)?.focus();
    say(`Version ${at + 1} of ${this.versions.length}.`);
  }
}
