/** Notes under an answer that failed or stopped: what happened, what is kept, what can be done. @module */
import { TIER_LABEL, h, icon } from './dom.js';
import { roughMoney } from './format.js';

/** @import { ErrorWords, LiveTurn } from './types' */
/** @import { Actions } from './place.js' */

/** @param {string} name @param {string} words @param {string} kind @param {() => void} press */
const button = (name, words, kind, press) => h('button', { class: `btn ${kind}`, type: 'button', on: { click: press } }, icon(name), ` ${words}`);

/** Buttons that ask another tier, for each that may answer this question. @param {LiveTurn} turn @param {Actions} actions */
function elsewhere(turn, actions) {
  const here = turn.tier || turn.route?.tier;
  return (turn.route?.candidates ?? [])
    .filter((c, i, all) => c.allowed && c.tier !== here && actions.tierState(c.tier).usable && all.findIndex((o) => o.tier === c.tier) === i)
    .map((c) => button(c.tier, `Answer on ${TIER_LABEL[c.tier]}, ${roughMoney(c.cost_micro)}`, '', () => actions.again(turn, c.tier, '')));
}

/** @param {ErrorWords} error */
function facts(error) {
  const list = h('dl', { class: 'facts' });
  for (const [term, words] of [['What happened', error.happened], ['What is kept', error.kept], ['What you can do', error.todo]]) {
    if (words) list.append(h('dt', { text: term }), h('dd', { text: words }));
  }
  return list;
}

/** @param {ErrorWords | null} error */
const support = (error) => (error?.ref ? h('p', { class: 'muted small' }, 'For support: ', h('code', { text: `${error.code} ${error.ref}` })) : null);

/** The note of a turn without an answer. @param {LiveTurn} turn @param {Actions} actions @param {boolean} live announce it */
export function failNote(turn, actions, live) {
  const error = turn.error ?? { code: 'failed', title: 'There is no answer', happened: 'The answer could not be made.', kept: 'Your question is saved.', todo: 'Try again.', ref: '' };
  return h('section', { class: 'note note-fail', role: live ? 'alert' : null }, icon('error'), h('h3', { text: error.title }), facts(error),
    h('div', { class: 'btns' }, button('redo', 'Try again', 'btn-primary', () => actions.again(turn, turn.tier_choice, turn.model_choice)), ...elsewhere(turn, actions)), support(error));
}

/** The note of an answer that stopped: it is kept, and can go on. @param {LiveTurn} turn @param {Actions} actions */
export function partNote(turn, actions) {
  const asked = turn.outcome === 'cancelled';
  const buttons = h('div', { class: 'btns' },
    turn.answer ? button('play', 'Continue from here', 'btn-primary', () => actions.goOn(turn)) : null,
    button('redo', 'Try again', turn.answer ? '' : 'btn-primary', () => actions.again(turn, turn.tier_choice, turn.model_choice)));
  const { error } = turn;
  const happened = asked ? (turn.answer ? 'The part above is saved.' : 'Your question is saved.') : [error?.happened, error?.kept ?? 'What arrived is saved.'].filter(Boolean).join(' ');
  const title = asked ? 'You stopped the answer' : turn.outcome === 'damaged' ? 'The answer arrived damaged' : 'The answer stopped early';
  return h('section', { class: 'note' }, icon(asked ? 'info' : 'warn'), h('h3', { text: title }), h('p', { text: happened }), buttons, asked ? null : support(error));
}

/** A note in the page for an error that belongs to no answer. @param {ErrorWords} error @param {() => void} [close] */
export function errorNote(error, close) {
  return h('section', { class: 'note note-fail', role: 'alert' }, icon('error'), h('h3', { text: error.title }), facts(error),
    close ? h('div', { class: 'btns' }, h('button', { class: 'btn btn-s', type: 'button', text: 'Close', on: { click: close } })) : null, support(error));
}
