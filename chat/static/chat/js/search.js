/** Search in everything asked and answered, and the page's commands. Ctrl K. @module */
import { ApiError, get } from './api.js';
import { byId, h, icon, say } from './dom.js';

/** @import { SearchHit } from './types' */

/** @typedef {{ name: string, icon: string, keys?: string[], run: () => void, when?: () => boolean }} Command */

const DELAY_MS = 160;
/** @type {Record<SearchHit['where'], string>} */
const WHERE = { title: 'title', question: 'question', answer: 'answer' };

export class Search {
  /** @param {{ search: string, conversation: string }} urls @param {Command[]} commands */
  constructor(urls, commands) {
    this.urls = urls;
    this.commands = commands;
    this.dialog = /** @type {HTMLDialogElement} */ (byId('find'));
    this.input = /** @type {HTMLInputElement} */ (byId('findq'));
    this.hits = byId('hits');
    /** @type {(() => void)[]} what Enter does, per option */
    this.runs = [];
    this.at = 0;
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.input.addEventListener('input', () => this.#typed());
    this.dialog.addEventListener('keydown', (event) => this.#key(event));
    this.hits.addEventListener('click', (event) => {
      const option = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[role=option]'));
      if (option) this.#run(Number(option.dataset['at']));
    });
    for (const opener of document.querySelectorAll('[data-open-find]')) opener.addEventListener('click', () => this.open());
  }

  open() {
    if (this.dialog.open) return;
    for (const pop of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(':popover-open'))) pop.hidePopover();
    this.dialog.showModal();
    this.input.select();
    this.#draw([], '');
    if (this.input.value.trim()) void this.#ask();
  }

  #typed() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const text = this.input.value.trim();
    if (!text || text.startsWith('>')) { this.#draw([], ''); return; }
    this.timer = setTimeout(() => void this.#ask(), DELAY_MS);
  }

  async #ask() {
    const text = this.input.value.trim();
    if (!text || text.startsWith('>')) return;
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      const data = await get(`${this.urls.search}?q=${encodeURIComponent(text)}`, signal);
      if (!signal.aborted) this.#draw(data.results, data.results.length ? '' : 'Nothing found in your conversations.');
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#draw([], `${error.words.happened} ${error.words.todo}`);
    }
  }

  /** @param {SearchHit[]} found @param {string} words */
  #draw(found, words) {
    this.runs = [];
    // Two versions of an answer often say the same: one line for both.
    found = found.filter((hit, at) => found.findIndex((o) => o.conversation === hit.conversation && o.position === hit.position && o.where === hit.where) === at);
    const text = this.input.value.trim().replace(/^>\s*/, '').toLowerCase();
    const commands = this.commands.filter((c) => (c.when?.() ?? true) && c.name.toLowerCase().includes(text));
    /** @type {Node[]} */
    const groups = [];
    if (words) groups.push(h('p', { class: 'hits-h', text: words }));
    if (found.length) groups.push(this.#group('Conversations', found.map((hit) => this.#hit(hit))));
    if (commands.length) groups.push(this.#group('Commands', commands.map((c) => this.#command(c))));
    if (!groups.length) groups.push(h('p', { class: 'hits-h', text: text ? 'Searching' : 'Type to search' }));
    this.hits.replaceChildren(...groups);
    this.#move(0);
    if (found.length) say(`${found.length} found.`);
    else if (words) say(words);
  }

  /** @param {string} name @param {HTMLElement[]} options */
  #group(name, options) {
    const id = `hg-${name.toLowerCase()}`;
    return h('div', { role: 'group', 'aria-labelledby': id }, h('p', { class: 'hits-h', id, text: name }), ...options);
  }

  /** @param {() => void} run @param {Node[]} children */
  #option(run, children) {
    const at = this.runs.push(run) - 1;
    return h('div', { class: 'hit', role: 'option', id: `hit-${at}`, 'data-at': at, 'aria-selected': 'false' }, ...children);
  }

  /** @param {SearchHit} hit */
  #hit(hit) {
    const where = hit.where === 'title' || hit.position === null ? '' : `#q${hit.position}`;
    const snippet = h('p', { class: 'sub', dir: 'auto' }, ...hit.snippet.map(([text, match]) => (match ? h('mark', { text }) : text)));
    const go = () => { this.dialog.close(); location.assign(this.urls.conversation.replace('ID', hit.conversation) + where); };
    return this.#option(go, [icon('chat'), h('div', {}, h('p', { dir: 'auto', text: hit.title }), snippet), h('span', { class: 'end', text: WHERE[hit.where] })]);
  }

  /** @param {Command} command */
  #command(command) {
    const keys = h('span', { class: 'end' }, ...(command.keys ?? []).map((text) => h('kbd', { text })));
    return this.#option(() => { this.dialog.close(); command.run(); }, [icon(command.icon), h('div', {}, h('p', { text: command.name })), keys]);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing) return;
    const last = this.runs.length - 1;
    if (event.key === 'ArrowDown') this.#move(this.at >= last ? 0 : this.at + 1);
    else if (event.key === 'ArrowUp') this.#move(this.at <= 0 ? last : this.at - 1);
    else if (event.key === 'Enter' && document.activeElement === this.input) this.#run(this.at);
    else return;
    event.preventDefault();
  }

  /** @param {number} to */
  #move(to) {
    this.hits.querySelector('[aria-selected=true]')?.setAttribute('aria-selected', 'false');
    this.at = Math.max(0, Math.min(to, this.runs.length - 1));
    const option = document.getElementById(`hit-${this.at}`);
    this.input.toggleAttribute('aria-activedescendant', Boolean(option));
    if (!option) return;
    option.setAttribute('aria-selected', 'true');
    option.scrollIntoView({ block: 'nearest' });
    this.input.setAttribute('aria-activedescendant', option.id);
  }

  /** @param {number} at */
  #run(at) { this.runs[at]?.(); }
}
