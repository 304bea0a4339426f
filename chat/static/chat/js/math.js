/**
 * Formulas in Markdown: `$$…$$`, `\[…\]`, `\(…\)`, and `$…$` by pandoc's rules, made stricter for prices.
 * Emits `<code class="math">` with the source; `enhance.js` typesets it. Pure.
 * @module
 */

/** @typedef {InstanceType<typeof import('../vendor/markdown-it/markdown-it.js').default>} Markdown */

const DOLLAR = 0x24;
const BACKSLASH = 0x5c;
const PRICE = /^\d[\d.,]*[,;:]?\s+\p{L}{2,}/u;

/** @param {string} text */
const escapeHtml = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c] ?? c);

/** Tell whether the character at `at` is escaped by an odd run of backslashes. @param {string} src @param {number} at */
function isEscaped(src, at) {
  let run = 0;
  while (src.charCodeAt(at - 1 - run) === BACKSLASH) run += 1;
  return run % 2 === 1;
}

/** Return where `close` stands unescaped after `from`, or -1. @param {string} src @param {string} close @param {number} from */
function findClose(src, close, from) {
  for (let at = src.indexOf(close, from); at >= 0; at = src.indexOf(close, at + 1)) {
    if (!isEscaped(src, at)) return at;
  }
  return -1;
}

/**
 * Return where the `$` that closes a formula opened at `open` stands, or -1 when it is a price, a variable or nothing.
 * pandoc: no space after the opening, none before the closing, no digit after it (pandoc.org/MANUAL.html#math).
 * Beyond pandoc: no letter or digit before the opening (R$, US$) or after the closing ($HOME/bin:$PATH),
 * and a number followed by words is a price.
 * @param {string} src @param {number} open
 */
export function dollarClose(src, open) {
  if (!/\S/.test(src.charAt(open + 1)) || /[\p{L}\p{N}]/u.test(src.charAt(open - 1))) return -1;
  for (let at = open + 1; at < src.length; at += 1) {
    if (src.charCodeAt(at) !== DOLLAR || isEscaped(src, at)) continue;
    if (/\s/.test(src.charAt(at - 1)) || at === open + 1) return -1;
    if (/[\p{L}\p{N}]/u.test(src.charAt(at + 1))) continue;
    return PRICE.test(src.slice(open + 1, at)) ? -1 : at;
  }
  return -1;
}

/** Return [start of the source, its end, length of the closing, display] of the formula at `pos`, or null. @param {string} src @param {number} pos @returns {[number, number, number, boolean] | null} */
function formulaAt(src, pos) {
  const two = src.slice(pos, pos + 2);
  /** @type {Record<string, [string, boolean]>} */
  const pairs = { '$$': ['$$', true], '\\[': ['\\]', true], '\\(': ['\\)', false] };
  const pair = pairs[two];
  if (pair) {
    const end = findClose(src, pair[0], pos + 2);
    return end > pos + 2 && src.slice(pos + 2, end).trim() ? [pos + 2, end, 2, pair[1]] : null;
  }
  if (src.charCodeAt(pos) !== DOLLAR) return null;
  const end = dollarClose(src, pos);
  return end < 0 ? null : [pos + 1, end, 1, false];
}

/** @param {any} state @param {boolean} silent */
function inlineRule(state, silent) {
  const code = state.src.charCodeAt(state.pos);
  if (code !== DOLLAR && code !== BACKSLASH) return false;
  const found = formulaAt(state.src, state.pos);
  if (!found) {
    // A failed `$$` is text as a whole: its second `$` must not open a formula of its own.
    if (state.src.slice(state.pos, state.pos + 2) !== '$$') return false;
    if (!silent) state.pending += '$$';
    state.pos += 2;
    return true;
  }
  if (!silent) {
    const token = state.push('math_inline', 'code', 0);
    token.content = state.src.slice(found[0], found[1]).trim();
    token.meta = { display: found[3] };
  }
  state.pos = found[1] + found[2];
  return true;
}

/** @param {any} state @param {number} startLine @param {number} endLine @param {boolean} silent */
function blockRule(state, startLine, endLine, silent) {
  const start = state.bMarks[startLine] + state.tShift[startLine];
  if (state.sCount[startLine] - state.blkIndent >= 4) return false;
  const open = state.src.slice(start, start + 2);
  if (open !== '$$' && open !== '\\[') return false;
  const close = open === '$$' ? '$$' : '\\]';
  const first = state.src.slice(start + 2, state.eMarks[startLine]);
  const sameLine = findClose(first, close, 0);
  if (sameLine >= 0 && first.slice(sameLine + 2).trim()) return false; // text follows: the paragraph's inline rule takes it
  let line = startLine;
  let closed = sameLine >= 0;
  while (!closed && line + 1 < endLine) {
    line += 1;
    if (state.sCount[line] < state.blkIndent && !state.isEmpty(line)) { line -= 1; break; }
    closed = state.src.slice(state.bMarks[line], state.eMarks[line]).trimEnd().endsWith(close);
  }
  if (!closed && first.trim()) return false; // only a delimiter alone on its line may stay open while the answer arrives
  if (silent) return true;
  const token = state.push('math_block', 'div', 0);
  const rest = line > startLine ? `\n${state.getLines(startLine + 1, line + 1, state.sCount[startLine], false)}` : '';
  const whole = `${first}${rest}`.trimEnd();
  token.content = (closed ? whole.slice(0, whole.lastIndexOf(close)) : whole).trim();
  token.map = [startLine, line + 1];
  token.block = true;
  token.meta = { open: !closed };
  state.line = line + 1;
  return true;
}

/** Teach `md` formulas. @param {Markdown} md */
export function mathPlugin(md) {
  md.inline.ruler.before('escape', 'math', inlineRule);
  md.block.ruler.before('fence', 'math', blockRule, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });
  md.renderer.rules['math_inline'] = (tokens, i) =>
    `<code class="math"${tokens[i].meta?.display ? ' data-display="1"' : ''}>${escapeHtml(tokens[i].content)}</code>`;
  md.renderer.rules['math_block'] = (tokens, i) =>
    `<div class="formula"><code class="${tokens[i].meta?.open ? 'math-open' : 'math'}" data-display="1">${escapeHtml(tokens[i].content)}</code></div>\n`;
}
