/**
 * An answer's Markdown as safe DOM. Raw HTML stays text, images become links, links lead only to http, https and mailto.
 * markdown-it writes no HTML that the answer contains; DOMPurify checks the result again with a short list of tags.
 * @module
 */
import MarkdownIt from '../vendor/markdown-it/markdown-it.js';
import DOMPurify from '../vendor/dompurify/purify.js';
import { mathPlugin } from './math.js';

/** @typedef {InstanceType<typeof MarkdownIt>} Markdown */

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const PURIFY = {
  ALLOWED_TAGS: ['p', 'br', 'strong', 'em', 's', 'code', 'pre', 'a', 'ul', 'ol', 'li', 'blockquote', 'h3', 'h4', 'h5', 'h6', 'hr', 'div', 'span', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ALLOWED_ATTR: ['href', 'class', 'start', 'rel', 'target', 'data-lang', 'data-display', 'title', 'scope'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: SAFE_LINK,
  ADD_URI_SAFE_ATTR: ['data-lang', 'data-display', 'start', 'scope', 'title'], // these hold no address
  RETURN_DOM_FRAGMENT: /** @type {const} */ (true),
};

/** @param {string | null | undefined} href */
const hostOf = (href) => { try { return new URL(href ?? '').host; } catch { return ''; } };

/** Every heading of an answer stands below the page's own h1 and the turn's h2. @param {Markdown} md */
function lowerHeadings(md) {
  md.core.ruler.push('lower_headings', (state) => {
    for (const token of state.tokens) if (token.type.startsWith('heading_')) token.tag = `h${Math.min(6, Number(token.tag[1]) + 2)}`;
  });
}

/** Column alignment as a class: style attributes are forbidden by the page's policy. @param {Markdown} md */
function alignByClass(md) {
  for (const name of ['th_open', 'td_open']) {
    md.renderer.rules[name] = (tokens, i, options, _env, self) => {
      const token = tokens[i];
      const side = /text-align:(right|center)/.exec(String(token.attrGet('style') ?? ''))?.[1];
      token.attrs = [...(side ? [/** @type {[string, string]} */ (['class', side === 'right' ? 'r' : 'c'])] : []), ...(name === 'th_open' ? [/** @type {[string, string]} */ (['scope', 'col'])] : [])];
      return self.renderToken(tokens, i, options);
    };
  }
}

/** @returns {Markdown} */
function create() {
  const md = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false });
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.validateLink = (url) => SAFE_LINK.test(url.trim());
  const { escapeHtml } = md.utils;
  md.use(mathPlugin);
  md.use(lowerHeadings);
  md.use(alignByClass);
  md.renderer.rules['fence'] = (tokens, i) => {
    const lang = tokens[i].info.trim().split(/[\s,{]/)[0].slice(0, 30);
    return `<div class="codebox" data-lang="${escapeHtml(lang)}"><pre><code>${escapeHtml(tokens[i].content)}</code></pre></div>\n`;
  };
  md.renderer.rules['code_block'] = (tokens, i) => `<div class="codebox" data-lang=""><pre><code>${escapeHtml(tokens[i].content)}</code></pre></div>\n`;
  md.renderer.rules['table_open'] = () => '<div class="scroll-x"><table>\n';
  md.renderer.rules['table_close'] = () => '</table></div>\n';
  // Loading a picture would tell a stranger's server that, and what, somebody read. A link waits to be pressed.
  md.renderer.rules['image'] = (tokens, i) => {
    const href = String(tokens[i].attrGet('src') ?? '');
    const words = tokens[i].content.trim();
    return `<a class="pic" href="${escapeHtml(href)}">Image${words ? `: ${escapeHtml(words)}` : ''} (${escapeHtml(hostOf(href) || href)})</a>`;
  };
  return md;
}

const md = create();
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName !== 'A') return;
  node.setAttribute('rel', 'noopener noreferrer nofollow');
  node.setAttribute('target', '_blank');
});

/** Return `text` with one kind of line end. A cut surrogate pair at the very end waits for its other half. @param {string} text */
export const normalise = (text) => text.replace(/\r\n?/g, '\n').replace(/[\ud800-\udbff]$/, '');

/**
 * @typedef {{ start: number, end: number, tokens: any[] }} Block
 * A top-level block: where its source stands in the text (UTF-16 offsets), and its tokens.
 */

/** Split `text` into its top-level blocks. @param {string} text @param {any} [references] link definitions that stand before it; new ones are added @returns {{ blocks: Block[], env: any, hasReferences: boolean }} */
export function parseBlocks(text, references = {}) {
  const env = { references };
  const tokens = md.parse(text, env);
  const lineStarts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lineStarts.push(at + 1);
  /** @type {Block[]} */
  const blocks = [];
  let depth = 0;
  for (const token of tokens) {
    if (depth === 0) {
      const [first, last] = token.map ?? [0, 0];
      blocks.push({ start: lineStarts[first] ?? text.length, end: lineStarts[last] ?? text.length, tokens: [] });
    }
    blocks[blocks.length - 1].tokens.push(token);
    depth += token.nesting;
  }
  return { blocks, env, hasReferences: Object.keys(references).length > 0 };
}

/** Return tokens as clean DOM. @param {any[]} tokens @param {any} env @returns {DocumentFragment} */
export function renderTokens(tokens, env) {
  return DOMPurify.sanitize(md.renderer.render(tokens, md.options, env), PURIFY);
}

/** Return a whole text as clean DOM. @param {string} text @returns {DocumentFragment} */
export function renderText(text) {
  return DOMPurify.sanitize(md.render(normalise(text)), PURIFY);
}

/** Return `html` written by a library of ours (highlighting) as clean DOM: spans with classes only. @param {string} html @returns {DocumentFragment} */
export function cleanSpans(html) {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true });
}

/** Return `html` written by KaTeX as clean MathML. @param {string} html @returns {DocumentFragment} */
export function cleanMath(html) {
  const bare = html.replace(/<annotation[\s\S]*?<\/annotation>/g, '');
  return DOMPurify.sanitize(bare, { USE_PROFILES: { mathMl: true }, FORBID_ATTR: ['style', 'href', 'src'], ADD_TAGS: ['mpadded'], RETURN_DOM_FRAGMENT: true });
}
