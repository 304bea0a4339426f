/**
 * The link to the server: reconnects with growing, jittered waits, and finds a dead connection by its own heartbeat,
 * because a half-open socket looks open to the browser for minutes.
 * @module
 */

/** @import { ServerMessage } from './types' */

/** @typedef {'connecting' | 'open' | 'lost' | 'sign-in' | 'refused'} LinkState */

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 15_000;
const HELLO_TIMEOUT_MS = 10_000;
const PATIENCE = 1.5; // heartbeats an unanswered ping may take: with 10 s, a dead link is found within 25 s
const SIGN_IN = 4401;
const SLOW_CODES = new Set([4400, 4403, 4429]); // trying again at once would only repeat the refusal

export class Link {
  /** @param {string} path @param {{ message: (m: ServerMessage) => void, state: (s: LinkState, code: number) => void }} handlers */
  constructor(path, handlers) {
    this.url = new URL(path, location.href.replace(/^http/, 'ws')).href;
    this.handlers = handlers;
    /** @type {LinkState} */
    this.state = 'connecting';
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    this.heartbeatMs = 10_000;
    /** When the oldest unanswered ping was sent, or 0. */
    this.pingAt = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retry = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.watchdog = undefined;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.heart = undefined;
    addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.hurry(); });
    addEventListener('pagehide', () => this.drop(1000, false));
    addEventListener('pageshow', (event) => { if (event.persisted) this.hurry(); });
  }

  connect() {
    clearTimeout(this.retry);
    this.retry = undefined;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.drop(event.code);
    this.watchdog = setTimeout(() => this.drop(4408), HELLO_TIMEOUT_MS);
  }

  /** Try again now: the network is back, the page is looked at, or somebody signed in. */
  hurry() {
    if (this.state === 'open') { this.#beat(); return; }
    if (this.socket) return;
    this.tries = 0;
    this.connect();
  }

  /** Send `message` when the link is open; tell whether it was. @param {Record<string, unknown>} message */
  send(message) {
    if (this.state !== 'open' || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /** @param {string} data */
  #receive(data) {
    /** @type {ServerMessage} */
    const message = JSON.parse(data);
    this.pingAt = 0;
    if (message.t === 'hello') {
      clearTimeout(this.watchdog);
      this.tries = 0;
      this.heartbeatMs = message.heartbeat_s * 1000;
      clearInterval(this.heart);
      this.heart = setInterval(() => this.#beat(), this.heartbeatMs);
      this.#become('open', 0);
    }
    this.handlers.message(message);
  }

  #beat() {
    const now = performance.now();
    if (!this.pingAt) {
      this.pingAt = now;
      this.send({ t: 'ping', at: Math.round(now) });
      clearTimeout(this.watchdog);
      this.watchdog = setTimeout(() => { if (this.pingAt) this.drop(4408); }, this.heartbeatMs * PATIENCE);
    }
  }

  /** Give the socket up, without waiting for a closing handshake that a dead link never answers. @param {number} code @param {boolean} [again] */
  drop(code, again = true) {
    clearTimeout(this.watchdog);
    clearInterval(this.heart);
    this.pingAt = 0;
    const socket = this.socket;
    this.socket = null;
    if (socket) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
    this.#become(code === SIGN_IN ? 'sign-in' : SLOW_CODES.has(code) ? 'refused' : 'lost', code);
    if (!again || code === SIGN_IN || this.retry !== undefined) return;
    const ceiling = SLOW_CODES.has(code) ? LONGEST_WAIT_MS : Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.tries);
    this.tries += 1;
    this.retry = setTimeout(() => this.connect(), ceiling * (0.5 + Math.random() / 2));
  }

  /** @param {LinkState} state @param {number} code */
  #become(state, code) {
    if (state === this.state && state !== 'open') return;
    this.state = state;
    this.handlers.state(state, code);
  }
}
