/** Loads the page's scripts after its first frame, all at once: none of them holds up the text that is already there. @module */

const HIDDEN_FRAME_MS = 300; // a page that is not in view draws no frame

let loaded = false;

function load() {
  if (loaded) return;
  loaded = true;
  const scripts = /** @type {string[]} */ (JSON.parse(document.getElementById('scripts')?.textContent ?? '[]'));
  for (const href of scripts) document.head.append(Object.assign(document.createElement('link'), { rel: 'modulepreload', href }));
  void import('./chat.js');
}

requestAnimationFrame(() => setTimeout(load));
setTimeout(load, HIDDEN_FRAME_MS);
