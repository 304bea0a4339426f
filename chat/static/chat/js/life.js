/** The way of a campus question to its first text, as a slim line of steps with times. @module */
import { h } from './dom.js';
import { seconds } from './format.js';

/** @import { LiveTurn } from './types' */

const STAGES = ['routed', 'submitted', 'queued', 'loading', 'first'];
/** @type {Record<string, string>} */
const LABEL = { routed: 'Routed', submitted: 'Submitted', queued: 'Queued', loading: 'Model loading', first: 'First token' };

/** Whether the turn has such a way: an answer of the campus is on its way. @param {LiveTurn} turn @param {boolean} running */
export const hasLife = (turn, running) => running && turn.tier === 'hpc' && 'submitted' in turn.marks;

/** Fill `box` with the turn's steps. @param {HTMLElement} box @param {LiveTurn} turn */
export function drawLife(box, turn) {
  const past = 'first' in turn.marks;
  const now = past ? STAGES.length : STAGES.findLastIndex((stage) => stage in turn.marks);
  const list = h('ol', { class: past ? 'life-steps is-past' : 'life-steps', 'aria-label': 'Progress of this question' },
    ...STAGES.map((stage, at) => step(turn, stage, at < now ? 'done' : at === now ? 'now' : '')));
  box.replaceChildren(list, ...(past ? [] : [h('div', { class: 'life-line' }, h('p', { class: 'life-say', text: words(turn) }))]));
}

/** @param {LiveTurn} turn @param {string} stage @param {string} how */
function step(turn, stage, how) {
  const label = stage === 'loading' && turn.step?.state !== 'loading' && stage in turn.marks ? 'Reading' : LABEL[stage];
  const time = h('bdi', { class: 'num', text: how === 'now' ? waited(turn) : took(turn, stage) });
  return h('li', { class: how || null, 'aria-current': how === 'now' ? 'step' : null },
    h('b', { text: label ?? stage }), ' ', h('span', {}, time, how === 'done' ? h('span', { class: 'vh', text: ', done' }) : null));
}

/** When a stage was reached; nothing for what happened before this page looked. @param {LiveTurn} turn @param {string} stage */
function took(turn, stage) {
  const at = turn.marks[stage];
  return at && turn.marks.start ? seconds(Math.max(0, at - turn.marks.start)) : '';
}

/** @param {LiveTurn} turn */
function waited(turn) {
  const s = Math.floor((Date.now() - (turn.marks.start || Date.parse(turn.created_at))) / 1000);
  return s >= 1 && s < 36_000 ? `${s} s` : '';
}

/** @param {LiveTurn} turn */
function words(turn) {
  const { state, detail } = turn.step ?? { state: 'submitted', detail: '' };
  if (state === 'loading') return 'The worker is loading the model.';
  if (state === 'prefill') return 'The model is reading the question.';
  const why = detail ? `${detail[0]?.toUpperCase()}${detail.slice(1)}` : state === 'queued' ? 'Waiting for a free worker' : 'Sent to the campus';
  return `${why.replace(/\.$/, '')}. You can leave: the answer waits here.`;
}
