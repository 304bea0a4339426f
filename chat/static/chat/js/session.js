/** Questions on their way: sent once under one id, sent again under the same id after a lost link, acknowledged events. @module */
import { Link } from './socket.js';

/** @import { ErrorWords, ServerMessage, Turn, TurnEvent } from './types' */
/** @import { LinkState } from './socket.js' */
/** @import { Store } from './store.js' */

const ACK_EVERY = 32;
const ACK_DELAY_MS = 100;
const WATCH_AGAIN_MS = 2000;

/**
 * @typedef {object} SessionEvents
 * @property {(turn: Turn, request: Record<string, any> | null) => void} accepted `request` is ours, or null for another tab's
 * @property {(event: TurnEvent) => void} applied
 * @property {(error: ErrorWords, request: Record<string, any> | null) => void} refused
 * @property {(message: Extract<ServerMessage, { t: 'conversation.changed' }>) => void} changed
 * @property {(state: LinkState, code: number) => void} link
 * @property {() => string | null} conversation the one to watch, when the server has it
 */

export class Session {
  /** @param {string} path @param {Store} store @param {SessionEvents} events */
  constructor(path, store, events) {
    this.store = store;
    this.events = events;
    /** @type {Map<string, Record<string, any>>} requests the server has not answered */
    this.outbox = new Map();
    /** @type {Map<string, number>} */
    this.acks = new Map();
    this.unacked = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.ackTimer = undefined;
    this.watchedAt = 0;
    this.link = new Link(path, { message: (m) => this.#message(m), state: (s, code) => events.link(s, code) });
  }

  start() { this.link.connect(); }

  /** Send `request`, now or when the link is back. Its `id` stays the same until the server answers. @param {Record<string, any>} request */
  ask(request) {
    this.outbox.set(request['id'], request);
    this.link.send(request);
  }

  /** Take a request back that was never sent. @param {string} id */
  takeBack(id) { return this.link.state !== 'open' && this.outbox.delete(id); }

  /** @param {string} turn */
  stop(turn) { this.link.send({ t: 'turn.stop', turn }); }

  watch() {
    const conversation = this.events.conversation();
    if (!conversation) return;
    this.watchedAt = performance.now();
    this.link.send({ t: 'watch', conversation, ...this.store.watched() });
  }

  /** Ask for what is missing, but not once per stray event. */
  #watchAgain() { if (performance.now() - this.watchedAt > WATCH_AGAIN_MS) this.watch(); }

  /** @param {ServerMessage} message */
  #message(message) {
    switch (message.t) {
      case 'hello':
        this.watch();
        for (const request of this.outbox.values()) this.link.send(request);
        break;
      case 'watching':
        this.watchedAt = 0;
        break;
      case 'turn.accepted': {
        const request = (message.for && this.outbox.get(message.for)) || null;
        if (message.for) this.outbox.delete(message.for);
        this.events.accepted(message.turn, request);
        break;
      }
      case 'event':
        this.#event(message);
        break;
      case 'conversation.changed':
        this.events.changed(message);
        break;
      case 'error': {
        const request = (message.for && this.outbox.get(message.for)) || null;
        if (message.for) this.outbox.delete(message.for);
        this.events.refused(message.error, request);
        break;
      }
      case 'pong':
        break;
    }
  }

  /** @param {TurnEvent} event */
  #event(event) {
    const result = this.store.apply(event);
    if (result === 'applied' || result === 'old') this.#acknowledge(event);
    if (result === 'applied') {
      this.events.applied(event);
    } else if (result !== 'old') {
      this.#watchAgain();
    }
  }

  /** @param {TurnEvent} event */
  #acknowledge(event) {
    this.acks.set(event.turn, event.seq);
    this.unacked += 1;
    if (this.unacked >= ACK_EVERY) this.#flush();
    else this.ackTimer ??= setTimeout(() => this.#flush(), ACK_DELAY_MS);
  }

  #flush() {
    clearTimeout(this.ackTimer);
    this.ackTimer = undefined;
    this.unacked = 0;
    for (const [turn, seq] of this.acks) this.link.send({ t: 'ack', turn, seq });
    this.acks.clear();
  }
}
