/** The line that says how the link to the server is, when it is not open. @module */
import { byId, h, icon, say } from './dom.js';

/** @import { LinkState } from './socket.js' */

const PATIENCE_MS = 1000; // a short gap is not worth a word

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {LinkState} state @param {number} code close code @param {string} login @param {() => void} retry */
export function showLink(state, code, login, retry) {
  const line = byId('link');
  clearTimeout(timer);
  if (state === 'open') {
    if (!line.hidden) say('Connected again.');
    line.hidden = true;
    return;
  }
  if (state === 'connecting') return;
  const draw = () => {
    line.replaceChildren(...content(state, code, login, retry));
    if (line.hidden || state === 'sign-in') say(line.firstElementChild?.nextElementSibling?.textContent ?? '');
    line.hidden = false;
  };
  if (state === 'lost' && line.hidden) timer = setTimeout(draw, PATIENCE_MS);
  else draw();
}

/** @param {LinkState} state @param {number} code @param {string} login @param {() => void} retry @returns {Node[]} */
function content(state, code, login, retry) {
  const again = () => h('button', { class: 'linkish', type: 'button', text: 'Try now', on: { click: retry } });
  if (state === 'sign-in') {
    const href = `${login}?next=${encodeURIComponent(location.pathname)}`;
    return [icon('lock', 'i-s'), h('span', { text: 'You are signed out. What you typed is kept in this browser.' }), h('a', { href, text: 'Sign in again' })];
  }
  if (state === 'refused') {
    const words = code === 4429 ? 'Too many pages of STREAM are open. Close some; this one tries again.' : 'The server refuses this connection. This page tries again.';
    return [icon('warn', 'i-s'), h('span', { text: words }), again()];
  }
  return [icon('clock', 'i-s'), h('span', { text: 'Reconnecting. What you type is kept, and answers go on without this page.' }), again()];
}
