/** Theme: as the system, light, dark. Kept in the profile, rendered by the server as data-theme: no flash. @module */
import { post } from './api.js';
import { say } from './dom.js';

/** @type {Record<string, string>} */
const WORDS = { '': 'as the system', light: 'light', dark: 'dark' };
/** @type {Record<string, string>} */
const NEXT = { '': 'light', light: 'dark', dark: '' };

/** Go to the next theme; a failure to keep it leaves the page as it is now. @param {string} url @param {string} token */
export async function cycleTheme(url, token) {
  const root = document.documentElement;
  const next = NEXT[root.dataset['theme'] ?? ''] ?? '';
  if (next) root.dataset['theme'] = next;
  else delete root.dataset['theme'];
  const word = document.querySelector('[data-theme-word]');
  if (word) word.textContent = WORDS[next];
  say(`Theme: ${WORDS[next]}.`);
  await post(url, { theme: next }, token).catch(() => say('The theme is changed on this page, but could not be kept.'));
}
