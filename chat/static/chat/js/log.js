/** The column of questions and answers: order, lazy older turns, and staying at the end while an answer arrives. @module */
import { byId } from './dom.js';
import { Place } from './place.js';

/** @import { LiveTurn } from './types' */
/** @import { Actions } from './place.js' */

const FIRST_PLACES = 10;
const CHUNK = 5;
/** So many positions come by themselves; further back only when the reader goes there. */
const UNASKED_POSITIONS = 100;
const NEAR_END_PX = 96;

/** Return the turns by position, oldest first, all versions of one together. @param {LiveTurn[]} turns */
function grouped(turns) {
  /** @type {Map<number, LiveTurn[]>} */
  const groups = new Map();
  for (const turn of turns) groups.set(turn.position, [...(groups.get(turn.position) ?? []), turn]);
  return [...groups.entries()].sort((a, b) => a[0] - b[0]).map(([, group]) => group);
}

export class Log {
  /** @param {Actions} actions @param {(before: number, backTo: number | null) => Promise<LiveTurn[]>} load fetches older turns; its failures are told there */
  constructor(actions, load) {
    this.actions = actions;
    this.load = load;
    this.root = byId('log');
    this.jump = byId('jump');
    this.earlier = byId('earlier');
    /** The first position that this page has; those before it are on the server. */
    this.from = 1;
    this.loading = false;
    /** @type {Map<number, Place>} by position */
    this.places = new Map();
    /** @type {LiveTurn[][]} older positions not drawn yet, oldest first */
    this.older = [];
    /** @type {Set<Place>} */
    this.dirty = new Set();
    this.frame = 0;
    this.stick = true;
    /** The page's height when its place was last looked at. */
    this.height = 0;
    // Turns get their real height when they come near the view: the end moves, and who is there stays there.
    new ResizeObserver(() => { if (this.stick) this.toEnd(true); }).observe(this.root);
    addEventListener('scroll', () => this.#scrolled(), { passive: true });
    addEventListener('resize', () => this.toEnd(false), { passive: true });
    this.earlier.addEventListener('click', () => void this.#loadOlder());
    this.jump.addEventListener('click', () => { this.toEnd(true); document.getElementById('ask')?.focus({ preventScroll: true }); });
  }

  /** Draw the end of the conversation at once, the rest while the browser is idle. @param {LiveTurn[]} turns */
  fill(turns) {
    const ordered = grouped(turns);
    this.from = ordered[0]?.[0].position ?? 1;
    this.older = ordered.slice(0, -FIRST_PLACES);
    this.root.replaceChildren(); // what the server drew until now
    for (const group of ordered.slice(-FIRST_PLACES)) this.#draw(group);
    this.#markLast();
    this.toEnd(true);
    this.#whenIdle();
  }

  #whenIdle() {
    this.earlier.hidden = this.older.length > 0 || this.from <= 1;
    const unasked = this.from > 1 && this.places.size < UNASKED_POSITIONS;
    if (!this.older.length && !unasked) return;
    const idle = window.requestIdleCallback ?? ((/** @type {() => void} */ run) => setTimeout(run, 30));
    idle(() => {
      if (!this.older.length) { void this.#loadOlder(); return; }
      this.drawOlder();
      this.#whenIdle();
    }, { timeout: 500 });
  }

  /** Fetch older turns; they are drawn while the browser is idle. @param {number | null} [backTo] the first position wanted; without it, some more */
  async #loadOlder(backTo = null) {
    if (this.loading || this.from <= 1) return;
    this.loading = true;
    try {
      const groups = grouped(await this.load(this.from, backTo));
      this.from = groups[0]?.[0].position ?? 1;
      this.older.unshift(...groups);
      this.#whenIdle();
    } catch {
      this.earlier.hidden = false; // to try again; the page has told why
    } finally {
      this.loading = false;
    }
  }

  /** Draw the next older turns above, keeping what is in view where it is. @param {number} [most] */
  drawOlder(most = CHUNK) {
    const chunk = this.older.splice(-most);
    if (!chunk.length) return;
    const anchor = this.root.firstElementChild;
    const before = anchor?.getBoundingClientRect().top ?? 0;
    for (const group of chunk.reverse()) this.#draw(group, true);
    const moved = (anchor?.getBoundingClientRect().top ?? 0) - before;
    if (Math.abs(moved) > 1) scrollBy({ top: moved, behavior: 'instant' });
  }

  /** Draw the turns back to `position`, at once, so that it can be shown. @param {number} position */
  async drawBackTo(position) {
    if (position < this.from) await this.#loadOlder(position);
    const missing = this.older.filter((group) => group[0].position >= position).length;
    if (missing) this.drawOlder(missing);
  }

  /** @param {LiveTurn[]} group versions of one position @param {boolean} [above] */
  #draw(group, above = false) {
    const versions = [...group].sort((a, b) => a.version - b.version);
    const place = new Place(versions[versions.length - 1], this.actions);
    place.versions = versions;
    if (versions.length > 1) place.drawFoot(false);
    this.places.set(place.position, place);
    if (above) this.root.prepend(place.ask, place.answer);
    else this.#insert(place);
  }

  /** @param {Place} place */
  #insert(place) {
    const next = [...this.places.values()].filter((p) => p.position > place.position && p.ask.isConnected).sort((a, b) => a.position - b.position)[0];
    if (next) next.ask.before(place.ask, place.answer);
    else this.root.append(place.ask, place.answer);
  }

  #markLast() {
    this.root.querySelector('.last')?.classList.remove('last');
    this.last()?.answer.classList.add('last');
  }

  /** Show a turn: a new question, or a new version of an answer. @param {LiveTurn} turn */
  put(turn) {
    const place = this.places.get(turn.position);
    if (place) place.add(turn);
    else if (turn.position >= this.from) {
      const older = this.older.find((group) => group[0].position === turn.position);
      if (older) older.push(turn);
      else this.#draw([turn]);
    }
    this.#markLast();
    this.settle();
  }

  /** Draw `turn` at the next frame. @param {LiveTurn} turn */
  touch(turn) {
    const place = this.places.get(turn.position);
    if (!place || place.turn.id !== turn.id) return;
    place.turn = turn;
    this.dirty.add(place);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      for (const one of this.dirty) one.draw(true);
      this.dirty.clear();
      this.settle();
    });
  }

  /** @returns {Place | undefined} */
  last() { return [...this.places.values()].sort((a, b) => b.position - a.position)[0]; }

  atEnd() { return document.documentElement.scrollHeight - scrollY - innerHeight < NEAR_END_PX; }

  /** A scroll that comes with a new height is the browser's doing, any other one the reader's. */
  #scrolled() {
    const height = document.documentElement.scrollHeight;
    const grew = height !== this.height;
    this.height = height;
    if (this.atEnd()) this.stick = true;
    else if (!grew) this.stick = false;
    this.jump.hidden = this.stick;
    if (!this.stick && scrollY < 2 * innerHeight && !this.earlier.hidden) void this.#loadOlder();
  }

  /** Follow the end when the reader is there. */
  settle() {
    if (this.stick) this.toEnd(true);
    else this.jump.hidden = this.atEnd();
  }

  /** @param {boolean} force */
  toEnd(force) {
    if (!force && !this.stick) return;
    this.stick = true;
    this.jump.hidden = true;
    this.height = document.documentElement.scrollHeight;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' });
  }
}
