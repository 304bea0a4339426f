/** The popover "Why this tier?": the judgement, and the three tiers as the policy saw them. @module */
import { TIER_LABEL, byId, h, svg, tierWord } from './dom.js';
import { about, roughMoney, seconds } from './format.js';
import { invokerOf } from './popovers.js';

/** @import { Candidate, Judgement, LiveTurn } from './types' */
/** @import { Actions } from './place.js' */

const LEVELS = /** @type {const} */ (['LOW', 'MEDIUM', 'HIGH']);
const GAP = 0.6; // per cent, between the parts of the strip

/** Fill the popover each time it opens. @param {(id: string) => LiveTurn | undefined} find @param {Actions} actions */
export function startWhy(find, actions) {
  const pop = byId('why');
  pop.addEventListener('beforetoggle', (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== 'open') return;
    const turn = find(invokerOf(pop)?.dataset['turn'] ?? '');
    if (!turn?.route) { event.preventDefault(); return; }
    byId('why-h').textContent = `Why ${TIER_LABEL[turn.tier || turn.route.tier]}?`;
    byId('why-body').replaceChildren(...body(turn, actions, () => pop.hidePopover()));
  });
}

/** @param {LiveTurn} turn @param {Actions} actions @param {() => void} close @returns {Node[]} */
function body(turn, actions, close) {
  const route = turn.route;
  if (!route) return [];
  const judgement = route.judgement;
  const judged = judgement && Object.keys(judgement.probabilities).length > 0;
  /** @type {Node[]} */
  const parts = [];
  if (judged) {
    parts.push(h('p', {}, 'Judged ', h('b', { text: `${judgement.complexity}, ${(judgement.probabilities[judgement.complexity] ?? 0).toFixed(2)}` }), `. ${judgement.reason}`), strip(judgement));
  } else if (judgement?.reason && judgement.reason !== route.reason) {
    parts.push(h('p', { text: judgement.reason }));
  }
  if (route.reason) parts.push(h('p', { text: route.reason }));
  if (turn.fallback) parts.push(h('p', { text: `${TIER_LABEL[turn.fallback.from]} could not answer: ${turn.fallback.why}` }));
  const tiers = table(turn, route.candidates, actions, close);
  parts.push(tiers);
  if (tiers.querySelector('button')) parts.push(h('p', { class: 'muted small', text: 'Redo adds a version. This answer stays. Costs are upper bounds.' }));
  return parts;
}

/** @param {Judgement} judgement */
function strip(judgement) {
  const room = 100 - GAP * (LEVELS.length - 1);
  const picture = svg('svg', { 'aria-hidden': 'true', focusable: 'false' });
  const key = h('p', { class: 'judge-key' });
  let x = 0;
  for (const level of LEVELS) {
    const p = judgement.probabilities[level] ?? 0;
    const on = level === judgement.complexity;
    picture.append(svg('rect', { class: on ? 'j-on' : 'j-off', x: `${x}%`, width: `${p * room}%`, height: 10 }));
    key.append(h(on ? 'b' : 'span', { text: `${level} ${p.toFixed(2)}` }), ' ');
    x += p * room + GAP;
  }
  return h('div', { class: 'judge' }, picture, key);
}

/** @param {LiveTurn} turn @param {Candidate[]} candidates @param {Actions} actions @param {() => void} close */
function table(turn, candidates, actions, close) {
  const rows = h('tbody');
  for (const c of candidates) {
    const here = c.tier === turn.tier && (!c.model || c.model === turn.model || candidates.filter((o) => o.tier === c.tier).length === 1);
    const state = actions.tierState(c.tier);
    const open = c.allowed && state.usable;
    const redo = h('button', { class: 'btn btn-s', type: 'button', text: `Redo on ${TIER_LABEL[c.tier]}`, on: { click: () => { close(); actions.again(turn, c.tier, c.model); } } });
    redo.disabled = turn.state !== 'ended' || actions.busy();
    const wait = here && turn.first_text_ms !== null ? seconds(turn.first_text_ms) : open ? about(c.wait_s) : '';
    const end = here ? h('td', { class: 'muted', text: 'this answer' }) : open ? h('td', {}, redo) : h('td', { class: 'muted why-not', text: c.why_not || state.why || 'not now' });
    const cost = here && turn.state === 'ended' ? (turn.cost_micro ? roughMoney(turn.cost_micro) : 'free') : open ? roughMoney(c.cost_micro) : '';
    rows.append(open || here
      ? h('tr', {}, h('th', { scope: 'row' }, tierWord(c.tier)), h('td', { text: wait }), h('td', { text: cost }), end)
      : h('tr', {}, h('th', { scope: 'row' }, tierWord(c.tier)), h('td', { colspan: '3', class: 'muted why-not', text: end.textContent })));
  }
  return h('table', { class: 'routes' }, h('caption', { class: 'vh', text: 'The same question on each tier' }),
    h('thead', {}, h('tr', {}, ...['Tier', 'First text', 'Cost'].map((text) => h('th', { scope: 'col', text })), h('th', { scope: 'col' }, h('span', { class: 'vh', text: 'Action' })))), rows);
}
