/** What an answer's DOM gets after it is clean: headers and copy buttons on code, highlighting and formulas on demand. @module */
import { cleanMath, cleanSpans } from './markdown.js';
import { copyText, h, icon } from './dom.js';

const LANGUAGES = new Set(['bash', 'c', 'cpp', 'css', 'diff', 'dockerfile', 'fortran', 'go', 'ini', 'java', 'javascript', 'json', 'julia', 'latex', 'makefile', 'markdown', 'matlab', 'python', 'r', 'rust', 'shell', 'sql', 'typescript', 'xml', 'yaml']);
/** @type {Record<string, string>} */
const ALIAS = { py: 'python', python3: 'python', sh: 'bash', zsh: 'bash', slurm: 'bash', console: 'shell', 'shell-session': 'shell', js: 'javascript', mjs: 'javascript', ts: 'typescript', jl: 'julia', f90: 'fortran', f95: 'fortran', 'c++': 'cpp', cc: 'cpp', h: 'c', hpp: 'cpp', tex: 'latex', yml: 'yaml', toml: 'ini', html: 'xml', svg: 'xml', md: 'markdown', make: 'makefile', docker: 'dockerfile', golang: 'go', rs: 'rust', m: 'matlab', octave: 'matlab', jsonc: 'json', patch: 'diff' };
/** @type {Record<string, string>} */
const NAME = { r: 'R', c: 'C', cpp: 'C++', sql: 'SQL', json: 'JSON', yaml: 'YAML', xml: 'XML', css: 'CSS', python: 'Python', julia: 'Julia', fortran: 'Fortran', matlab: 'MATLAB', latex: 'LaTeX', javascript: 'JavaScript', typescript: 'TypeScript', java: 'Java', go: 'Go', rust: 'Rust', dockerfile: 'Dockerfile', makefile: 'Makefile', markdown: 'Markdown' };
const HIGHLIGHT_LIMIT = 60_000;
const MATH_CACHE_LIMIT = 500;

/** @type {Map<string, Promise<boolean>>} */
const languages = new Map();
/** @type {typeof import('../vendor/katex/katex.js').default | null} */
let katex = null;
/** @type {Promise<void> | null} */
let katexLoad = null;
/** @type {Map<string, DocumentFragment>} */
const mathCache = new Map();

/** Return the elements in `root`, itself included, that match. @param {Element} root @param {string} selector */
const within = (root, selector) => /** @type {HTMLElement[]} */ ([...(root.matches(selector) ? [root] : []), ...root.querySelectorAll(selector)]);

/** Give code blocks their header with language and copy button. @param {Element} root */
export function dress(root) {
  for (const box of within(root, '.codebox')) {
    if (box.firstElementChild?.tagName === 'HEADER') continue;
    const asked = box.dataset['lang'] || 'text';
    const lang = NAME[ALIAS[asked.toLowerCase()] ?? asked.toLowerCase()] ?? asked;
    const button = h('button', { class: 'btn btn-quiet btn-s', type: 'button', 'aria-label': `Copy ${lang} code` }, icon('copy'), ' ', h('span', { text: 'Copy' }));
    button.addEventListener('click', () => copyText(box.querySelector('code')?.textContent?.replace(/\n$/, '') ?? '', button));
    box.prepend(h('header', {}, h('span', { text: lang }), button));
  }
}

/** Typeset formulas and colour code in `root`; call it when `root` is, or will soon be, in view. @param {Element} root */
export function finishLook(root) {
  for (const box of within(root, '.codebox')) void highlight(box);
  typeset(root);
  requestAnimationFrame(() => { if (root.isConnected) openToKeyboard(root); });
}

/** Let the keyboard reach boxes that scroll, and only those. @param {Element} root */
function openToKeyboard(root) {
  for (const box of within(root, '.codebox pre, .scroll-x, .formula')) {
    if (box.scrollWidth <= box.clientWidth + 1 || box.hasAttribute('tabindex')) continue;
    const name = box.matches('.scroll-x') ? 'Table, scrolls sideways' : box.matches('.formula') ? 'Formula, scrolls sideways' : 'Code, scrolls sideways';
    box.tabIndex = 0;
    box.setAttribute('role', box.matches('.scroll-x') ? 'region' : 'group');
    box.setAttribute('aria-label', name);
  }
}

/** Load a language of the highlighter. @param {string} name @returns {Promise<boolean>} */
function loadLanguage(name) {
  const known = languages.get(name);
  if (known) return known;
  const load = Promise.all([import('../vendor/highlight/core.js'), import(`../vendor/highlight/languages/${name}.js`)])
    .then(([core, grammar]) => { core.default.registerLanguage(name, grammar.default); return true; })
    .catch(() => { languages.delete(name); return false; }); // offline: the code stays plain
  languages.set(name, load);
  return load;
}

/** @param {HTMLElement} box */
async function highlight(box) {
  const asked = (box.dataset['lang'] ?? '').toLowerCase();
  const name = ALIAS[asked] ?? asked;
  const code = box.querySelector('code');
  if (!code || code.dataset['lit'] || !LANGUAGES.has(name)) return;
  const text = code.textContent ?? '';
  if (!text || text.length > HIGHLIGHT_LIMIT || !(await loadLanguage(name))) return;
  if (code.textContent !== text) return;
  const core = (await import('../vendor/highlight/core.js')).default;
  code.replaceChildren(cleanSpans(core.highlight(text, { language: name, ignoreIllegals: true }).value));
  code.dataset['lit'] = '1';
}

/** Typeset the formulas in `root`: at once when KaTeX is here, else when it has come. @param {Element} root */
export function typeset(root) {
  const places = within(root, 'code.math');
  if (!places.length) return;
  if (katex) {
    for (const place of places) typesetOne(place);
    return;
  }
  katexLoad ??= import('../vendor/katex/katex.js').then((m) => { katex = m.default; }).catch(() => { katexLoad = null; });
  void katexLoad.then(() => { for (const place of within(root, 'code.math')) typesetOne(place); });
}

/** @param {HTMLElement} place */
function typesetOne(place) {
  if (!katex) return;
  const source = place.textContent ?? '';
  const display = place.dataset['display'] === '1';
  const key = `${display ? 'd' : 'i'}${source}`;
  let made = mathCache.get(key);
  if (!made) {
    try {
      made = cleanMath(katex.renderToString(source, { displayMode: display, output: 'mathml', throwOnError: true, strict: 'ignore', trust: false, maxExpand: 500, maxSize: 30 }));
    } catch {
      place.className = 'math-bad'; // not LaTeX that can be read: its source stays
      place.title = 'This formula could not be typeset; its source is shown.';
      return;
    }
    if (mathCache.size >= MATH_CACHE_LIMIT) mathCache.clear();
    mathCache.set(key, made);
  }
  place.replaceWith(made.cloneNode(true));
}
