/** Numbers and times as people read them. Pure. @module */

/** @param {number} n */
export const count = (n) => n.toLocaleString('en-US');

/** Milliseconds as seconds. @param {number} ms */
export const seconds = (ms) => (ms < 99_500 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`);

/** An expected wait. @param {number} s */
export const about = (s) => (s < 90 ? `~${Math.max(1, Math.round(s))} s` : `~${Math.round(s / 60)} min`);

/** Micro-dollars, exact to the fourth place or to the first two digits that are not zero. @param {number} micro */
export function money(micro) {
  const usd = micro / 1e6;
  return `$${usd.toFixed(usd !== 0 && usd < 0.0001 ? 6 : 4)}`;
}

/** A rough amount. @param {number} micro */
export function roughMoney(micro) {
  if (micro === 0) return 'free';
  const usd = micro / 1e6;
  return usd < 0.001 ? 'under $0.001' : `about $${usd < 0.1 ? usd.toFixed(3) : usd.toFixed(2)}`;
}

/** A context window. @param {number} tokens */
export const windowSize = (tokens) => (tokens >= 1_000_000 ? `${+(tokens / 1e6).toFixed(1)} M` : tokens >= 1000 ? `${Math.round(tokens / 1000)} k` : String(tokens));

/** The clock time of an ISO date. @param {string} iso */
export const clock = (iso) => new Date(iso).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

/** @param {string} text */
export const wordCount = (text) => (text.match(/[\p{L}\p{N}][\p{L}\p{N}'’-]*/gu) ?? []).length;
