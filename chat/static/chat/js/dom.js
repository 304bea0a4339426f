/** Building DOM without HTML strings. @module */

/** @import { TierChoice } from './types' */

const SVG = 'http://www.w3.org/2000/svg';
/** @type {Record<TierChoice, string>} */
export const TIER_LABEL = { auto: 'Auto', local: 'Local', hpc: 'Campus HPC', cloud: 'Cloud' };

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * Make an element. `props`: attributes; `class`, `text`, `on` (listeners) are special; null, undefined and false leave one out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, any>} [props] @param {...Child} children @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [type, listener] of Object.entries(value)) node.addEventListener(type, /** @type {any} */ (listener));
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false).map((c) => /** @type {Node | string} */ (c)));
  return node;
}

/** Make an SVG element. @param {string} tag @param {Record<string, string | number>} [attrs] @param {...Node} children */
export function svg(tag, attrs = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** Make an icon of the page's sprite. @param {string} name @param {string} [extra] further classes */
export const icon = (name, extra = '') =>
  svg('svg', { class: `i ${extra}`.trim(), 'aria-hidden': 'true', focusable: 'false' }, svg('use', { href: `#i-${name}` }));

/** Make a tier's word with its icon. @param {TierChoice} tier */
export const tierWord = (tier) => h('span', { class: `tier tier-${tier}` }, icon(tier), ` ${TIER_LABEL[tier]}`);

/** Make an icon button. @param {string} name icon @param {string} label @param {Record<string, any>} [props] @param {string} [extra] classes of the icon */
export const iconButton = (name, label, props = {}, extra = '') =>
  h('button', { class: 'ib', type: 'button', 'aria-label': label, title: label, ...props }, icon(name, extra));

/** Return the element with `id`; it is part of the page. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element #${id}.`);
  return node;
}

/** Announce `text` to screen readers, politely. @param {string} text */
export function say(text) {
  const line = document.getElementById('say');
  if (!line) return;
  line.textContent = '';
  requestAnimationFrame(() => { line.textContent = text; });
}

/** Copy `text`; the button's icon shows that it worked. @param {string} text @param {HTMLElement} button */
export async function copyText(text, button) {
  let ok = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    ok = copyBySelection(text);
  }
  const word = button.querySelector('span');
  const use = button.querySelector('use');
  if (word) word.textContent = ok ? 'Copied' : 'Not copied';
  use?.setAttribute('href', ok ? '#i-check' : '#i-x');
  say(ok ? 'Copied.' : 'The browser did not allow copying.');
  setTimeout(() => { if (word) word.textContent = 'Copy'; use?.setAttribute('href', '#i-copy'); }, 2000);
}

/** Copy where the clipboard API is closed (plain http on a campus host). @param {string} text */
function copyBySelection(text) {
  const box = h('textarea', { class: 'vh', readonly: true, 'aria-hidden': 'true', tabindex: '-1' });
  box.value = text;
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  document.body.append(box);
  box.select();
  const ok = document.execCommand('copy');
  box.remove();
  focused?.focus({ preventScroll: true });
  return ok;
}

/** @param {string} key */
export function recall(key) { try { return localStorage.getItem(key); } catch { return null; } }

/** Keep a small thing in this browser; a full or closed storage only means that it is not kept. @param {string} key @param {string | null} value */
export function keep(key, value) {
  try {
    if (value === null || value === '') localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch { /* storage is closed or full */ }
}
