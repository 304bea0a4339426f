/** The campus-only lock of the open conversation. Setting it is immediate; taking it off asks first. @module */
import { ApiError, post } from './api.js';
import { byId, h, icon, say } from './dom.js';

/** @import { Boot, ErrorWords } from './types' */

export class CampusLock {
  /** @param {Boot} boot @param {() => string | null} stored the conversation when the server has it @param {{ changed: (on: boolean) => void, failed: (error: ErrorWords) => void }} actions */
  constructor(boot, stored, actions) {
    this.boot = boot;
    this.stored = stored;
    this.actions = actions;
    this.on = boot.campus_only;
    this.button = /** @type {HTMLButtonElement} */ (byId('lock'));
    this.pop = byId('campus');
    this.box = /** @type {HTMLDialogElement} */ (byId('unlock'));
    this.button.addEventListener('click', () => {
      if (!this.on) void this.set(true);
      else if (!this.stored()) void this.set(false); // nothing was sent yet, so nothing can leave
    });
    byId('unlock-ask').addEventListener('click', () => { this.pop.hidePopover(); this.box.showModal(); });
    this.box.querySelector('form')?.addEventListener('submit', (event) => { event.preventDefault(); this.box.close(); void this.set(false); });
    this.draw();
  }

  /** @param {boolean} on */
  async set(on) {
    const id = this.stored();
    this.button.disabled = true;
    try {
      if (id) await post(this.boot.urls.campus_only.replace('ID', id), { on }, this.boot.csrf);
      this.show(on);
      say(on ? 'Campus only: on. Nothing of this conversation goes to Cloud.' : 'Campus only: off.');
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.actions.failed(error.words);
    } finally {
      this.button.disabled = false;
    }
  }

  /** @param {boolean} on */
  show(on) {
    if (on === this.on) return;
    this.on = on;
    this.draw();
    this.actions.changed(on);
  }

  draw() {
    this.button.classList.toggle('is-on', this.on);
    // Locked and stored: the button opens the explanation instead of changing anything.
    const explains = this.on && Boolean(this.stored());
    if (explains) {
      this.button.setAttribute('popovertarget', 'campus');
      this.button.setAttribute('aria-haspopup', 'dialog');
      this.button.removeAttribute('aria-pressed');
    } else {
      for (const name of ['popovertarget', 'aria-haspopup', 'aria-expanded']) this.button.removeAttribute(name);
      this.button.setAttribute('aria-pressed', String(this.on));
    }
    this.button.title = this.on ? 'Campus only: on' : 'Campus only: off';
    this.button.replaceChildren(icon(this.on ? 'lock' : 'unlock'), ' ', h('span', { class: 'word', text: 'Campus only' }));
  }
}
