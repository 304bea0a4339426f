/** Requests to the site: JSON both ways; failures come as the server's own words. @module */

/** @import { ErrorWords } from './types' */

const TIMEOUT_MS = 15_000;

export class ApiError extends Error {
  /** @param {ErrorWords} words */
  constructor(words) {
    super(words.happened);
    this.words = words;
  }
}

/** @type {ErrorWords} */
const UNREACHED = { code: 'no_connection', title: 'The server was not reached', happened: 'The request got no answer from the server.', kept: 'Nothing was changed.', todo: 'Check your connection, then try again.', ref: '' };

/** The current token: signing in again in another tab makes a new one. @param {string} fallback */
const csrf = (fallback) => /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? fallback;

/** @param {string} url @param {RequestInit} init @returns {Promise<any>} */
async function call(url, init) {
  let response;
  try {
    response = await fetch(url, { ...init, credentials: 'same-origin', redirect: 'error', signal: init.signal ?? AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(UNREACHED);
  }
  const data = await response.json().catch(() => null);
  if (response.ok) return data ?? {};
  throw new ApiError(data?.error ?? { ...UNREACHED, code: `http_${response.status}`, title: 'The server could not do that', happened: `It answered with status ${response.status}.` });
}

/** @param {string} url @param {Record<string, unknown>} body @param {string} token */
export const post = (url, body, token) =>
  call(url, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json', 'X-CSRFToken': csrf(token) } });

/** @param {string} url @param {AbortSignal} [signal] ends it early */
export const get = (url, signal) => call(url, { headers: { Accept: 'application/json' }, ...(signal && { signal }) });

/** Return a new id. `randomUUID` is missing on plain http, which a campus host may be. @returns {string} */
export function newId() {
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID();
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
