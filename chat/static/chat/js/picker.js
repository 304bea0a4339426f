/** Who should answer: Auto, a tier, or one of its models. Kept per conversation in this browser. @module */
import { TIER_LABEL, byId, h, icon, keep, recall, tierWord } from './dom.js';
import { about, windowSize } from './format.js';

/** @import { ModelInfo, Pick, TierInfo } from './types' */

/** US dollars per million tokens, in and out. @param {ModelInfo} model */
function price(model) {
  if (model.free) return 'free';
  const usd = (/** @type {number} */ micro) => `$${+(micro / 1e6).toFixed(micro < 1e6 ? 3 : 2)}`;
  return `${usd(model.price_in_micro)} in, ${usd(model.price_out_micro)} out`;
}

export class Picker {
  /** @param {TierInfo[]} tiers @param {string} conversation @param {() => boolean} campusOnly @param {(pick: Pick) => void} changed */
  constructor(tiers, conversation, campusOnly, changed) {
    this.tiers = tiers;
    this.key = `stream.pick.${conversation}`;
    this.campusOnly = campusOnly;
    this.changed = changed;
    this.button = byId('pick');
    this.list = byId('opts');
    this.pop = byId('picker');
    /** @type {Pick} */
    this.pick = this.#recalled();
    this.list.addEventListener('change', (event) => {
      const input = /** @type {HTMLInputElement} */ (event.target);
      this.choose({ tier: /** @type {Pick['tier']} */ (input.dataset['tier']), model: input.dataset['model'] ?? '' });
    });
    this.list.addEventListener('click', (event) => { if (/** @type {Element} */ (event.target).closest('label') && /** @type {MouseEvent} */ (event).detail > 0) this.#closeSoon(); });
    this.list.addEventListener('keydown', (event) => { if (event.key === 'Enter') { event.preventDefault(); this.close(); } });
    this.pop.addEventListener('toggle', (event) => { if (/** @type {ToggleEvent} */ (event).newState === 'open') /** @type {HTMLElement | null} */ (this.list.querySelector('input:checked'))?.focus(); });
    this.draw();
  }

  /** A pointer's choice closes the popover; arrow keys only move in it. */
  #closeSoon() { setTimeout(() => { if (this.list.querySelector('input:checked')) this.close(); }, 120); }

  close() { this.pop.hidePopover(); byId('ask').focus({ preventScroll: true }); }

  /** @returns {Pick} */
  #recalled() {
    try {
      const kept = JSON.parse(recall(this.key) ?? 'null');
      if (kept && kept.tier in TIER_LABEL && typeof kept.model === 'string' && (kept.tier === 'auto' || this.isOpen(kept.tier))) return { tier: kept.tier, model: kept.model };
    } catch { /* what is kept cannot be read: start from Auto */ }
    return { tier: 'auto', model: '' };
  }

  /** @param {string} tier */
  info(tier) { return this.tiers.find((t) => t.tier === tier); }

  /** @param {string} tier */
  isOpen(tier) { return Boolean(this.info(tier)?.usable) && !(tier === 'cloud' && this.campusOnly()); }

  /** Why a tier is closed, in words. @param {TierInfo} info */
  why(info) { return info.tier === 'cloud' && this.campusOnly() ? 'Off: this conversation is campus only.' : info.why || 'Not available now.'; }

  /** The model that `pick` names, or the first of its tier. @returns {ModelInfo | undefined} */
  model() {
    const models = this.info(this.pick.tier)?.models ?? [];
    return models.find((m) => m.name === this.pick.model) ?? models[0];
  }

  /** @param {Pick} pick */
  choose(pick) {
    this.pick = pick;
    keep(this.key, JSON.stringify(pick));
    this.draw();
    this.changed(pick);
  }

  draw() {
    if (this.pick.tier !== 'auto' && !this.isOpen(this.pick.tier)) this.pick = { tier: 'auto', model: '' };
    const { tier, model } = this.pick;
    const named = model && (this.info(tier)?.models.length ?? 0) > 1 ? this.model()?.label : '';
    this.button.replaceChildren(tierWord(tier), ...(named ? [h('span', { class: 'muted pick-model', text: named })] : []), icon('down', 'i-s'));
    this.button.setAttribute('aria-label', `Tier and model: ${TIER_LABEL[tier]}${named ? `, ${named}` : ''}`);
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.['value'];
    this.list.replaceChildren(this.#auto(), ...this.tiers.flatMap((info) => this.#rows(info)));
    if (focused) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-value="${CSS.escape(focused)}"]`))?.focus();
  }

  /** @param {Pick} pick @param {boolean} [shut] */
  #radio(pick, shut = false) {
    const value = `${pick.tier}/${pick.model}`;
    const input = h('input', { type: 'radio', name: 'tier', value, 'data-tier': pick.tier, 'data-model': pick.model, 'data-value': value, disabled: shut });
    input.checked = pick.tier === this.pick.tier && pick.model === this.pick.model;
    return input;
  }

  #auto() {
    const words = this.campusOnly() ? 'The judge picks Local or Campus HPC and tells you why.' : 'The judge picks the lightest tier that can do it, and tells you why.';
    return h('label', { class: 'opt opt-auto' }, this.#radio({ tier: 'auto', model: '' }), h('span', { class: 'name' }, tierWord('auto'), h('small', { text: words })));
  }

  /** @param {TierInfo} info @returns {HTMLElement[]} */
  #rows(info) {
    if (!this.isOpen(info.tier)) {
      const id = `shut-${info.tier}`;
      const input = this.#radio({ tier: info.tier, model: '' }, true);
      input.setAttribute('aria-describedby', id);
      const word = tierWord(info.tier);
      word.append(' ', icon('lock', 'i-s'));
      return [h('label', { class: 'opt opt-auto is-shut' }, input, h('span', { class: 'name' }, word, h('small', { id, text: this.why(info) })))];
    }
    return info.models.map((model, at) => {
      const first = at === 0;
      const small = h('small', { text: first ? [model.label, model.note].filter(Boolean).join(': ') : [info.label, model.note].filter(Boolean).join(': ') });
      return h('label', { class: first ? 'opt' : 'opt is-sub' }, this.#radio({ tier: info.tier, model: first ? '' : model.name }),
        h('span', { class: 'name' }, first ? tierWord(info.tier) : model.label, small),
        h('span', { class: 'v' }, h('span', { class: 'vh', text: 'first text ' }), about(model.typical_first_text_s)),
        h('span', { class: 'v' }, info.tier === 'hpc' && model.free ? 'free on campus' : price(model), model.free ? null : h('small', { text: ' per 1 M tokens' })),
        h('span', { class: 'v' }, windowSize(model.window), h('small', { text: ' window' })));
    });
  }
}
