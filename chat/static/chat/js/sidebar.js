/** The list of conversations: new ones appear, titles follow, rename and delete. @module */
import { ApiError, get, post } from './api.js';
import { byId, h, iconButton, keep, recall, say, svg } from './dom.js';
import { invokerOf } from './popovers.js';

/** @import { Boot } from './types' */

const HIDDEN_KEY = 'stream.side-hidden';
const campusMark = () => svg('svg', { class: 'i i-s conv-lock', role: 'img', 'aria-label': 'campus only' }, svg('use', { href: '#i-lock' }));

export class Sidebar {
  /** @param {Boot} boot @param {() => string | null} current the open conversation @param {{ renamed: (id: string, title: string) => void, removed: (id: string) => void }} actions */
  constructor(boot, current, actions) {
    this.boot = boot;
    this.current = current;
    this.actions = actions;
    this.list = byId('conversations');
    this.shell = /** @type {HTMLElement} */ (document.querySelector('.shell'));
    this.menu = byId('convmenu');
    this.renameBox = /** @type {HTMLDialogElement} */ (byId('rename'));
    this.deleteBox = /** @type {HTMLDialogElement} */ (byId('delete'));
    this.chosen = '';
    this.more = byId('more-conversations');
    this.mark = boot.more_conversations;
    this.#startMenu();
    this.#startMore();
    for (const button of document.querySelectorAll('[data-side-toggle]')) button.addEventListener('click', () => this.toggle());
    this.#setHidden(recall(HIDDEN_KEY) === '1');
  }

  #startMenu() {
    this.menu.addEventListener('beforetoggle', (event) => {
      if (/** @type {ToggleEvent} */ (event).newState === 'open') this.chosen = /** @type {HTMLElement | undefined} */ (invokerOf(this.menu)?.closest('[data-id]'))?.dataset['id'] ?? this.chosen;
    });
    byId('menu-rename').addEventListener('click', () => this.#ask(this.renameBox));
    byId('menu-delete').addEventListener('click', () => this.#ask(this.deleteBox));
    this.#submit(this.renameBox, () => this.#rename());
    this.#submit(this.deleteBox, () => this.#delete());
  }

  /** Older conversations come when the reader scrolls near the end of the list. */
  #startMore() {
    this.more.hidden = !this.mark;
    if (!this.mark) return;
    let busy = false;
    const near = new IntersectionObserver(async (entries) => {
      if (busy || !entries.some((entry) => entry.isIntersecting)) return;
      busy = true;
      near.disconnect();
      await this.#addMore();
      busy = false;
      if (this.mark) near.observe(this.more);
    }, { root: this.list, rootMargin: '600px 0px' });
    near.observe(this.more);
  }

  async #addMore() {
    try {
      const { groups, more } = await get(`${this.boot.urls.conversations}?after=${encodeURIComponent(this.mark)}`);
      for (const [heading, conversations] of groups) {
        const list = this.#under(heading);
        for (const one of conversations) if (!this.row(one.id)) list.append(this.#item(one));
      }
      this.mark = more;
      this.more.hidden = !more;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.more.textContent = 'Older conversations were not loaded. Load the page again.';
      this.mark = '';
    }
  }

  /** @param {string} heading @returns {Element} the list under it, at the end of the bar when it is new */
  #under(heading) {
    const known = [...this.list.querySelectorAll('h2')].find((h2) => h2.textContent === heading);
    if (known?.nextElementSibling) return known.nextElementSibling;
    const id = `cg-${heading.toLowerCase().replace(/ /g, '-')}`;
    const list = h('ul', { class: 'convs', 'aria-labelledby': id });
    this.more.before(h('h2', { id, text: heading }), list);
    return list;
  }

  /** @param {{ id: string, title: string, campus_only: boolean }} conversation */
  #item({ id, title, campus_only: lock }) {
    const link = h('a', { class: 'row', href: this.boot.urls.conversation.replace('ID', id), 'aria-current': id === this.current() ? 'page' : null }, h('span', { class: 'grow', dir: 'auto', text: title }), lock && campusMark());
    return h('li', { class: 'conv', 'data-id': id }, link, iconButton('more', `Options for ${title}`, { popovertarget: 'convmenu', 'aria-haspopup': 'true', title: null }));
  }

  /** @param {HTMLDialogElement} box */
  #ask(box) {
    this.menu.hidePopover();
    const title = this.titleOf(this.chosen);
    const input = /** @type {HTMLInputElement | null} */ (box.querySelector('input'));
    if (input) input.value = title;
    const name = box.querySelector('[data-name]');
    if (name) name.textContent = title;
    this.#fail(box, '');
    box.showModal();
    input?.select();
  }

  /** @param {HTMLDialogElement} box @param {() => Promise<void>} act */
  #submit(box, act) {
    box.querySelector('form')?.addEventListener('submit', async (event) => {
      event.preventDefault();
      const button = /** @type {HTMLButtonElement} */ (box.querySelector('button[type=submit]'));
      button.disabled = true;
      try {
        await act();
        box.close();
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.#fail(box, `${error.words.happened} ${error.words.todo}`);
      } finally {
        button.disabled = false;
      }
    });
  }

  /** @param {HTMLDialogElement} box @param {string} words */
  #fail(box, words) {
    const line = /** @type {HTMLElement} */ (box.querySelector('[data-error]'));
    line.textContent = words;
    line.hidden = !words;
  }

  async #rename() {
    const title = /** @type {HTMLInputElement} */ (this.renameBox.querySelector('input')).value.trim();
    if (!title) throw new ApiError({ code: 'empty', title: '', happened: 'The name is empty.', kept: '', todo: 'Type a name.', ref: '' });
    const data = await post(this.#url('rename'), { title }, this.boot.csrf);
    this.setTitle(this.chosen, data.title ?? title);
    this.actions.renamed(this.chosen, data.title ?? title);
    say('Renamed.');
  }

  async #delete() {
    const id = this.chosen;
    await post(this.#url('delete'), {}, this.boot.csrf);
    this.remove(id);
    say('Deleted.');
    this.actions.removed(id);
  }

  /** @param {'rename' | 'delete'} name */
  #url(name) { return this.boot.urls[name].replace('ID', this.chosen); }

  /** @param {string} id @returns {HTMLElement | null} */
  row(id) { return this.list.querySelector(`[data-id="${CSS.escape(id)}"]`); }

  /** @param {string} id */
  titleOf(id) { return this.row(id)?.querySelector('.grow')?.textContent ?? ''; }

  /** @param {string} id @param {string} title */
  setTitle(id, title) {
    const row = this.row(id);
    const word = row?.querySelector('.grow');
    if (!row || !word) return;
    word.textContent = title;
    row.querySelector('button')?.setAttribute('aria-label', `Options for ${title}`);
  }

  /** @param {string} id @param {boolean} on */
  setLock(id, on) {
    const link = this.row(id)?.querySelector('a');
    link?.querySelector('.conv-lock')?.remove();
    if (on) link?.append(campusMark());
  }

  /** Put a conversation on top, or change it when it is there. @param {{ id: string, title: string, campus_only: boolean }} conversation */
  put({ id, title, campus_only: lock }) {
    if (!this.row(id)) this.#today().prepend(this.#item({ id, title, campus_only: lock }));
    this.setTitle(id, title);
    this.setLock(id, lock);
  }

  /** @returns {Element} the list under "Today" */
  #today() {
    const first = this.list.querySelector('h2');
    if (first?.textContent === 'Today' && first.nextElementSibling) return first.nextElementSibling;
    const list = h('ul', { class: 'convs', 'aria-labelledby': 'cg-today' });
    this.list.prepend(h('h2', { id: 'cg-today', text: 'Today' }), list);
    byId('no-conversations').hidden = true;
    return list;
  }

  /** @param {string} id */
  remove(id) {
    const row = this.row(id);
    const list = row?.parentElement;
    row?.remove();
    if (list && !list.childElementCount) { list.previousElementSibling?.remove(); list.remove(); }
    byId('no-conversations').hidden = Boolean(this.list.querySelector('li'));
  }

  toggle() {
    if (matchMedia('(max-width: 56rem)').matches) { byId('side').togglePopover(); return; }
    const hidden = !this.shell.classList.contains('side-hidden');
    this.#setHidden(hidden);
    keep(HIDDEN_KEY, hidden ? '1' : null);
    const other = /** @type {HTMLElement | null} */ (document.querySelector(hidden ? '[data-side-toggle=show]' : '[data-side-toggle=hide]'));
    if (document.activeElement === document.body || document.activeElement?.matches('[data-side-toggle]')) other?.focus();
    say(hidden ? 'Side bar hidden.' : 'Side bar shown.');
  }

  /** @param {boolean} hidden */
  #setHidden(hidden) {
    this.shell.classList.toggle('side-hidden', hidden);
    for (const button of document.querySelectorAll('[data-side-toggle]')) button.setAttribute('aria-expanded', String(!hidden));
  }
}
