/** The box for the question: Enter sends, the draft is kept, and the button sends or stops. @module */
import { byId, icon, keep, recall, say } from './dom.js';

const DRAFT_DELAY_MS = 250;

export class Composer {
  /** @param {string} conversation whose draft is kept @param {{ send: (text: string) => boolean, stop: () => void, pick: () => void }} actions */
  constructor(conversation, actions) {
    this.actions = actions;
    this.box = /** @type {HTMLTextAreaElement} */ (byId('ask'));
    this.button = /** @type {HTMLButtonElement} */ (byId('send'));
    this.key = `stream.draft.${conversation}`;
    this.running = false;
    this.waiting = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    if (!this.box.value) this.box.value = recall(this.key) ?? '';
    this.box.addEventListener('input', () => this.#changed());
    this.box.addEventListener('keydown', (event) => this.#key(event));
    this.button.form?.addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    addEventListener('pagehide', () => this.save());
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    // 229 is the key code of a key that an input method is still composing (Safari ends isComposing too early).
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === 'Enter' && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      if (!event.repeat) this.submit();
    } else if (event.key === '@' && !this.box.value) {
      event.preventDefault();
      this.actions.pick();
    }
  }

  #changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(), DRAFT_DELAY_MS);
    this.draw();
  }

  /** Keep the draft. What was sent and is not yet accepted stays kept, although the box is empty. */
  save() { if (this.box.value || !this.waiting) keep(this.key, this.box.value); }

  /** Send what is typed, once: until it is accepted the button is off and a second press does nothing. */
  submit() {
    if (this.waiting) return;
    if (this.running) {
      if (document.activeElement === this.button) this.actions.stop();
      else if (this.box.value.trim()) say('An answer is arriving. Escape stops it; your text stays in the box.');
      return;
    }
    const text = this.box.value;
    if (!text.trim()) return;
    this.save();
    if (this.actions.send(text)) {
      this.box.value = '';
      this.draw();
    }
  }

  /** Put `text` back, in front of anything typed since. @param {string} text */
  restore(text) {
    this.box.value = this.box.value.trim() ? `${text}\n${this.box.value}` : text;
    this.save();
    this.draw();
  }

  /** The question is accepted: its draft is no longer needed. */
  accepted() { keep(this.key, this.box.value); }

  /** @param {string} text */
  fill(text) {
    this.box.value = text;
    this.#changed();
    this.box.focus();
    this.box.setSelectionRange(text.length, text.length);
  }

  /** @param {{ running: boolean, waiting: boolean }} state an answer is arriving; a question waits for the server */
  set(state) {
    if (state.running === this.running && state.waiting === this.waiting) return;
    Object.assign(this, state);
    this.draw();
  }

  draw() {
    const { running, waiting, button } = this;
    const label = running ? 'Stop' : 'Send';
    if (button.getAttribute('aria-label') !== label) {
      button.setAttribute('aria-label', label);
      button.title = running ? 'Stop (Esc)' : 'Send (Enter)';
      button.replaceChildren(icon(running ? 'stop' : 'send'));
      button.classList.toggle('is-stop', running);
      this.box.placeholder = running ? 'Stop, or write the next question' : 'Ask a question';
    }
    button.disabled = running ? false : waiting || !this.box.value.trim();
  }
}
