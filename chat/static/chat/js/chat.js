/** The chat page: joins the socket, the column of answers, the box, the side bar and the keyboard. @module */
import { ApiError, get, newId } from './api.js';
import { CampusLock } from './campus.js';
import { Composer } from './composer.js';
import { TIER_LABEL, byId, copyText, keep, recall, say } from './dom.js';
import { count, wordCount } from './format.js';
import { startKeys } from './keys.js';
import { showLink } from './linkline.js';
import { Log } from './log.js';
import { errorNote } from './notes.js';
import { Picker } from './picker.js';
import { startPopovers } from './popovers.js';
import { Search } from './search.js';
import { Session } from './session.js';
import { Sidebar } from './sidebar.js';
import { Store } from './store.js';
import { cycleTheme } from './theme.js';
import { startWhy } from './why.js';

/** @import { Boot, ErrorWords, LiveTurn, Turn, TurnEvent, TierChoice, TierName } from './types' */
/** @import { Actions } from './place.js' */

const TITLE_CHARS = 60;

class ChatPage {
  /** @param {Boot} boot */
  constructor(boot) {
    this.boot = boot;
    this.id = boot.conversation ?? boot.new_conversation;
    this.stored = boot.conversation !== null;
    this.store = new Store(boot.turns);
    /** @type {string | null} what is shown until the server has accepted it */
    this.pending = null;
    this.pendingKey = `stream.pending.${boot.conversation ?? 'new'}`;
    startPopovers();
    /** @type {Actions} */
    this.actions = { again: (turn, tier, model) => this.again(turn, tier, model), goOn: (turn) => this.goOn(turn), tierState: (tier) => this.tierState(tier), busy: () => this.busy() };
    this.lock = new CampusLock(boot, () => (this.stored ? this.id : null), { changed: (on) => this.lockChanged(on), failed: (error) => this.notice(error) });
    this.picker = new Picker(boot.tiers, this.id, () => this.lock.on, () => this.drawUnder());
    this.log = new Log(this.actions, (before, backTo) => this.older(before, backTo));
    this.side = new Sidebar(boot, () => (this.stored ? this.id : null), { renamed: (id, title) => { if (id === this.id) this.title(title); }, removed: (id) => { if (id === this.id) this.leave(); } });
    this.composer = new Composer(boot.conversation ?? 'new', { send: (text) => this.send(text), stop: () => void this.stop(), pick: () => byId('pick').click() });
    this.session = new Session(boot.ws, this.store, {
      accepted: (turn, request) => this.accepted(turn, request), applied: (event) => this.applied(event),
      refused: (error, request) => this.refused(error, request), changed: (message) => this.changed(message),
      link: (state, code) => showLink(state, code, boot.urls.login ?? '/login', () => this.session.link.hurry()), conversation: () => (this.stored ? this.id : null),
    });
    startWhy((id) => this.store.turns.get(id), this.actions);
    this.startCommands();
    this.forgetIfAccepted();
    this.log.fill([...this.store.turns.values()]);
    this.drawUnder();
    this.drawState();
    void this.goToHash();
    addEventListener('hashchange', () => void this.goToHash());
    this.session.start();
  }

  startCommands() {
    const theme = () => cycleTheme(this.boot.urls.theme, this.boot.csrf);
    const newChat = () => location.assign(this.boot.urls.chat);
    for (const button of document.querySelectorAll('[data-theme-cycle]')) button.addEventListener('click', theme);
    for (const prompt of document.querySelectorAll('[data-prompt]')) prompt.addEventListener('click', () => this.composer.fill(prompt.querySelector('span')?.textContent ?? ''));
    this.search = new Search(this.boot.urls, [
      { name: 'New chat', icon: 'new', keys: ['Ctrl', 'Shift', 'O'], run: newChat },
      { name: 'Make this conversation campus only', icon: 'lock', run: () => void this.lock.set(true), when: () => !this.lock.on },
      { name: 'Change the theme', icon: 'theme', run: () => void theme() },
      { name: 'Show or hide the side bar', icon: 'shrink', keys: ['Ctrl', '.'], run: () => this.side.toggle() },
      { name: 'Keyboard shortcuts', icon: 'keyboard', keys: ['?'], run: () => /** @type {HTMLElement | null} */ (document.querySelector('[data-open-keys]'))?.click() },
    ]);
    startKeys({
      search: () => this.search?.open(), newChat, side: () => this.side.toggle(), stop: () => this.stop(),
      box: () => this.composer.box.focus(), version: (by) => this.log.last()?.step(by),
      copyAnswer: () => { const place = this.log.last(); const button = /** @type {HTMLElement | null} */ (place?.foot.querySelector('[aria-label="Copy answer"]') ?? null); if (place && button) void copyText(place.turn.answer, button); },
      copyCode: () => { const all = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('.codebox header button')); all[all.length - 1]?.click(); },
      why: () => { const all = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[popovertarget=why]:not([popovertargetaction])')); all[all.length - 1]?.click(); },
    });
  }

  // ── asking ─────────────────────────────────────────────────────────────

  busy() { return this.session.outbox.size > 0 || Boolean(this.store.running()); }

  /** @param {string} text @returns {boolean} whether it is on its way */
  send(text) {
    if (this.busy()) return false;
    const id = this.idFor(text);
    const { tier, model } = this.picker.pick;
    this.pending = id;
    this.showStart(false);
    this.log.stick = true;
    this.log.put(this.draft(id, text, tier, model));
    this.session.ask({ t: 'turn.start', id, conversation: this.id, text, tier, model, campus_only: this.lock.on });
    this.drawState();
    return true;
  }

  /** The id of this send. A text whose first send was never answered keeps its id, and a new chat its own, even over a reload. @param {string} text */
  idFor(text) {
    try {
      const kept = JSON.parse(recall(this.pendingKey) ?? 'null');
      if (kept?.text === text && typeof kept.id === 'string' && typeof kept.conversation === 'string') {
        this.id = kept.conversation;
        return kept.id;
      }
    } catch { /* unreadable: a new id */ }
    const id = newId();
    keep(this.pendingKey, JSON.stringify({ id, text, conversation: this.id }));
    return id;
  }

  /** A reload may come between sending and the answer: then the page already holds the turn, and the draft is old. */
  forgetIfAccepted() {
    try {
      const kept = JSON.parse(recall(this.pendingKey) ?? 'null');
      if (!kept || !this.boot.turns.some((turn) => turn.client_id === kept.id)) return;
      keep(this.pendingKey, null);
      if (this.composer.box.value === kept.text) { this.composer.box.value = ''; this.composer.save(); this.composer.draw(); }
    } catch { keep(this.pendingKey, null); }
  }

  /** What is shown until the server has accepted a question. @param {string} id @param {string} question @param {TierChoice} tier @param {string} model @returns {LiveTurn} */
  draft(id, question, tier, model) {
    const last = this.log.last()?.position ?? 0;
    return { id, conversation: this.id, client_id: id, position: last + 1, version: 1, continues: null, question, tier_choice: tier, model_choice: model, state: 'queued', outcome: '', answer: '', reasoning: '', error: null, route: null, tier: '', model: '', model_label: '', attempts: 0, tokens_in: 0, tokens_out: 0, tokens_estimated: false, cost_micro: 0, first_text_ms: null, total_ms: null, events_end: 0, created_at: new Date().toISOString(), ended_at: null, seen: 0, fence: 0, step: null, marks: { start: Date.now() }, fallback: null };
  }

  /** @param {LiveTurn} turn @param {TierChoice} tier @param {string} model */
  again(turn, tier, model) {
    if (this.busy()) { say('Another answer is arriving. Stop it first.'); return; }
    this.session.ask({ t: 'turn.again', id: newId(), turn: turn.id, tier, model });
    this.drawState();
    this.composer.box.focus({ preventScroll: true });
  }

  /** @param {LiveTurn} turn */
  goOn(turn) {
    if (this.busy()) { say('Another answer is arriving. Stop it first.'); return; }
    this.session.ask({ t: 'turn.continue', id: newId(), turn: turn.id });
    this.drawState();
    this.composer.box.focus({ preventScroll: true });
  }

  /** @returns {boolean} whether there was something to stop */
  stop() {
    const running = this.store.running();
    if (running) { this.session.stop(running.id); say('Stopping.'); return true; }
    if (this.pending && this.session.takeBack(this.pending)) { this.dropPending(true); return true; }
    return false;
  }

  // ── what the server says ───────────────────────────────────────────────

  /** @param {Turn} turn @param {Record<string, any> | null} request */
  accepted(turn, request) {
    if (turn.conversation !== this.id) return;
    if (request?.['t'] === 'turn.start') {
      const isNew = !this.stored;
      this.dropPending(false);
      if (isNew) this.becomeStored(turn);
      this.composer.accepted();
    }
    const live = this.store.merge(turn);
    this.showStart(false);
    this.log.put(live);
    if (request) this.session.watch();
    this.drawState();
  }

  /** The first question is stored: from now on this page has an address. @param {Turn} turn */
  becomeStored(turn) {
    this.stored = true;
    history.replaceState(null, '', this.boot.urls.conversation.replace('ID', this.id));
    const title = turn.question.trim().split('\n')[0].slice(0, TITLE_CHARS);
    this.side.put({ id: this.id, title, campus_only: this.lock.on });
    this.title(title);
    this.composer.key = `stream.draft.${this.id}`;
    this.pendingKey = `stream.pending.${this.id}`;
    keep('stream.draft.new', null);
    this.lock.draw();
  }

  /** Take the shown draft away. @param {boolean} giveBack put its text back into the box */
  dropPending(giveBack) {
    const place = [...this.log.places.values()].find((p) => p.turn.id === this.pending);
    if (place) {
      clearInterval(place.ticking);
      place.ask.remove();
      place.answer.remove();
      this.log.places.delete(place.position);
      if (giveBack) this.composer.restore(place.turn.question);
    }
    keep(this.pendingKey, null);
    this.pending = null;
    this.showStart(this.log.places.size === 0);
    this.drawState();
  }

  /** @param {TurnEvent} event */
  applied(event) {
    const turn = this.store.turns.get(event.turn);
    if (!turn) return;
    this.log.touch(turn);
    this.announce(turn, event);
    if (event.kind === 'done' || turn.seen === 1) this.drawState();
  }

  /** @param {LiveTurn} turn @param {TurnEvent} event */
  announce(turn, event) {
    const tier = turn.tier ? TIER_LABEL[turn.tier] : '';
    if (event.kind === 'route') say(`${TIER_LABEL[event.route.tier]} will answer.`);
    else if (event.kind === 'delta' && turn.answer === event.text) say(`${tier} is answering.`);
    else if (event.kind === 'fallback') say(`${TIER_LABEL[event.from]} could not answer. ${TIER_LABEL[event.to]} answers in its place.`);
    else if (event.kind === 'done' && turn.outcome === 'complete') say(`Answer complete, ${count(wordCount(turn.answer))} words.`);
    else if (event.kind === 'done' && turn.outcome !== 'failed') say(`The answer stopped after ${count(wordCount(turn.answer))} words. What arrived is kept.`);
  }

  /** @param {ErrorWords} error @param {Record<string, any> | null} request */
  refused(error, request) {
    if (request?.['t'] === 'turn.start') this.dropPending(true);
    if (error.code === 'sign_in_needed') showLink('sign-in', 4401, this.boot.urls.login ?? '/login', () => this.session.link.hurry());
    this.notice(error);
    this.drawState();
  }

  /** @param {Extract<import('./types').ServerMessage, { t: 'conversation.changed' }>} message */
  changed(message) {
    const mine = message.conversation === this.id;
    if (message.deleted) {
      this.side.remove(message.conversation);
      if (mine) this.leave();
      return;
    }
    this.side.put({ id: message.conversation, title: message.title, campus_only: message.campus_only });
    if (!mine) return;
    this.title(message.title);
    this.lock.show(message.campus_only);
  }

  /** Fetch the turns before a position; what of them is known here already stays. @param {number} before @param {number | null} backTo @returns {Promise<LiveTurn[]>} */
  async older(before, backTo) {
    try {
      const url = `${this.boot.urls.turns.replace('ID', this.id)}?before=${before}${backTo === null ? '' : `&back_to=${backTo}`}`;
      const found = /** @type {Turn[]} */ ((await get(url)).turns).map((turn) => this.store.merge(turn));
      const first = found[0]?.position ?? before;
      return [...this.store.turns.values()].filter((turn) => turn.position >= first && turn.position < before);
    } catch (error) {
      if (error instanceof ApiError) this.notice({ ...error.words, title: 'Earlier questions were not loaded' });
      throw error;
    }
  }

  // ── the page around ────────────────────────────────────────────────────

  /** @param {TierName} tier */
  tierState(tier) {
    const info = this.boot.tiers.find((t) => t.tier === tier);
    if (!info) return { usable: false, why: 'Not set up here.', note: '' };
    return { usable: this.picker ? this.picker.isOpen(tier) : info.usable, why: this.picker ? this.picker.why(info) : info.why, note: info.models[0]?.note ?? '' };
  }

  /** @param {boolean} on */
  lockChanged(on) {
    this.side.setLock(this.id, on);
    this.picker.draw();
    this.drawUnder();
  }

  drawState() { this.composer.set({ running: Boolean(this.store.running()), waiting: this.session.outbox.size > 0 }); }

  drawUnder() {
    const note = this.picker.pick.tier === 'auto' ? this.boot.tiers.find((t) => t.usable && t.models[0]?.note)?.models[0] : this.picker.model();
    const short = note?.note.split(/[:.]/)[0] ?? ''; // the picker has the whole note
    const words = note && short ? `${note.label}: ${short.charAt(0).toLowerCase()}${short.slice(1)}.` : 'Answers can be wrong. Check what matters.';
    byId('under').textContent = this.lock.on ? `Campus only. ${words}` : words;
  }

  /** @param {string} title */
  title(title) {
    const head = byId('title');
    head.textContent = title;
    head.hidden = false;
    document.title = `${title} · STREAM`;
  }

  /** @param {boolean} on */
  showStart(on) {
    const start = document.getElementById('start');
    if (start) start.hidden = !on;
    byId('log').hidden = on;
  }

  leave() { location.replace(this.boot.urls.chat); }

  /** @param {ErrorWords} error */
  notice(error) {
    const note = errorNote(error, () => { note.remove(); this.composer.box.focus(); });
    byId('notices').replaceChildren(note);
    this.log.settle();
  }

  /** Show the question that the address names, e.g. from a search. */
  async goToHash() {
    const position = /^#q(\d+)$/.exec(location.hash)?.[1];
    if (!position) return;
    await this.log.drawBackTo(Number(position));
    const place = this.log.places.get(Number(position));
    if (!place) return;
    this.log.stick = false;
    place.ask.scrollIntoView({ block: 'start', behavior: 'instant' });
    place.ask.focus({ preventScroll: true });
  }
}

const page = new ChatPage(JSON.parse(byId('boot').textContent ?? '{}'));
if (!page.boot.conversation && matchMedia('(pointer: fine)').matches) page.composer.box.focus();
