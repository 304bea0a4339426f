/** Renders an answer while it arrives: finished top-level blocks are frozen, only the last one is drawn again. @module */
import { h } from './dom.js';
import { dress, finishLook, typeset } from './enhance.js';
import { normalise, parseBlocks, renderText, renderTokens } from './markdown.js';

/** @import { Block } from './markdown.js' */

/** The whole text at once, for answers that ended. @param {HTMLElement} root @param {string} text */
export function renderWhole(root, text) {
  root.replaceChildren(renderText(text));
  dress(root);
}

export class AnswerRenderer {
  /** @param {HTMLElement} root an empty `.prose` */
  constructor(root) {
    this.root = root;
    this.caret = h('span', { class: 'caret', 'aria-hidden': 'true' });
    /** @type {string} what is drawn */
    this.text = '';
    /** @type {number} everything before this offset is frozen */
    this.frozen = 0;
    /** @type {Element[]} nodes of the last block */
    this.last = [];
    /** @type {string} */
    this.lastSource = '';
    /** @type {any} */
    this.references = {};
    /** @type {{ info: string, content: string, node: Text } | null} */
    this.fence = null;
  }

  reset() {
    this.root.replaceChildren();
    this.text = '';
    this.frozen = 0;
    this.references = {};
    this.startBlock();
  }

  /** Draw `text`, which usually goes on from what was drawn before. @param {string} text */
  update(text) {
    const next = normalise(text);
    if (next === this.text) return;
    if (!next.startsWith(this.text)) this.reset();
    this.text = next;
    this.caret.remove();
    const tail = next.slice(this.frozen);
    const { blocks, env } = parseBlocks(tail, this.references);
    const base = this.frozen;
    blocks.forEach((block, at) => {
      const isLast = at === blocks.length - 1;
      const source = tail.slice(block.start, isLast ? undefined : block.end);
      if (at > 0) this.startBlock();
      this.drawBlock(block, source, env);
      if (!isLast) this.freezeBlock();
      else this.frozen = base + block.start;
    });
    this.placeCaret();
  }

  /** Draw the final `text` and take the caret away. @param {string} text */
  finish(text) {
    const whole = text.replace(/\r\n?/g, '\n');
    this.update(whole);
    this.caret.remove();
    this.freezeBlock();
    // A link definition at the end gives links to blocks frozen long before.
    if (parseBlocks(whole).hasReferences) renderWhole(this.root, whole);
    finishLook(this.root);
  }

  startBlock() {
    this.last = [];
    this.lastSource = '';
    this.fence = null;
  }

  freezeBlock() {
    for (const node of this.last) finishLook(node);
  }

  /** @param {Block} block @param {string} source @param {any} env */
  drawBlock(block, source, env) {
    if (source === this.lastSource && this.last.length) return;
    this.lastSource = source;
    const only = block.tokens.length === 1 && block.tokens[0].type === 'fence' ? block.tokens[0] : null;
    if (only && this.growFence(only)) return;
    const fragment = renderTokens(block.tokens, env);
    const nodes = [...fragment.childNodes].filter((node) => node instanceof Element);
    for (const node of this.last) node.remove();
    this.root.append(...nodes);
    for (const node of nodes) { dress(node); typeset(node); }
    this.last = nodes;
    this.fence = null;
    const code = only ? nodes[0]?.querySelector('code') : null;
    if (only && code) {
      if (!(code.firstChild instanceof Text)) code.prepend(document.createTextNode(only.content));
      this.fence = { info: only.info, content: only.content, node: /** @type {Text} */ (code.firstChild) };
    }
  }

  /** Add to the code block that is arriving instead of drawing it again: selection and scroll stay. @param {any} token */
  growFence(token) {
    const fence = this.fence;
    if (!fence || fence.info !== token.info || !token.content.startsWith(fence.content)) return false;
    fence.node.appendData(token.content.slice(fence.content.length));
    fence.content = token.content;
    return true;
  }

  placeCaret() {
    let place = this.root.lastElementChild;
    if (!place) { this.root.append(this.caret); return; }
    while (/^(UL|OL|LI|BLOCKQUOTE)$/.test(place.tagName) && place.lastElementChild && /^(UL|OL|LI|P|BLOCKQUOTE)$/.test(place.lastElementChild.tagName)) place = place.lastElementChild;
    if (place.matches('.codebox')) place.querySelector('code')?.append(this.caret);
    else if (/^(P|LI|H[3-6])$/.test(place.tagName)) place.append(this.caret);
    else this.root.append(this.caret);
  }
}
