/** The keyboard map. Single keys work only outside text boxes and can be turned off. @module */
import { byId, keep, recall } from './dom.js';

const SINGLE_KEY = 'stream.single-keys';

/**
 * @typedef {object} KeyActions
 * @property {() => void} search
 * @property {() => void} newChat
 * @property {() => void} side
 * @property {() => boolean} stop tells whether there was something to stop
 * @property {() => void} copyAnswer
 * @property {() => void} copyCode
 * @property {() => void} box
 * @property {() => void} why
 * @property {(by: number) => void} version
 */

/** @param {EventTarget | null} target */
const isText = (target) => target instanceof Element && Boolean(target.closest('input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]'));

/** @param {KeyActions} actions */
export function startKeys(actions) {
  const help = /** @type {HTMLDialogElement} */ (byId('keys'));
  const single = /** @type {HTMLInputElement} */ (byId('single-keys'));
  single.checked = recall(SINGLE_KEY) !== 'off';
  single.addEventListener('change', () => keep(SINGLE_KEY, single.checked ? null : 'off'));
  const showHelp = () => { for (const pop of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(':popover-open'))) pop.hidePopover(); help.showModal(); };
  for (const opener of document.querySelectorAll('[data-open-keys]')) opener.addEventListener('click', showHelp);
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const covered = Boolean(document.querySelector('dialog[open], :popover-open'));
    const done = (event.ctrlKey || event.metaKey) && !event.altKey ? withControl(event, actions, covered) : alone(event, actions, covered, single.checked, showHelp);
    if (done) event.preventDefault();
  });
}

/** @param {KeyboardEvent} event @param {KeyActions} actions @param {boolean} covered @returns {boolean} */
function withControl(event, actions, covered) {
  const key = event.key.toLowerCase();
  if (key === 'k' && !event.shiftKey) { actions.search(); return true; }
  if (covered) return false;
  if (event.shiftKey && key === 'o') actions.newChat();
  else if (event.shiftKey && key === 'c') actions.copyAnswer();
  else if (event.shiftKey && (key === ';' || key === ':')) actions.copyCode();
  else if (!event.shiftKey && key === '.') actions.side();
  else return false;
  return true;
}

/** @param {KeyboardEvent} event @param {KeyActions} actions @param {boolean} covered @param {boolean} single @param {() => void} help @returns {boolean} */
function alone(event, actions, covered, single, help) {
  if (covered || event.altKey || event.ctrlKey || event.metaKey) return false;
  if (event.key === 'Escape') return actions.stop();
  if (!single || isText(event.target)) return false;
  /** @type {Record<string, () => void>} */
  const map = { '/': actions.box, w: actions.why, '[': () => actions.version(-1), ']': () => actions.version(1), '?': help };
  const act = map[event.key.toLowerCase()];
  act?.();
  return Boolean(act);
}
