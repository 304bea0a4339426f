/** Popovers sit by the button that opened them; on a narrow screen the stylesheet makes them bottom sheets. @module */

const GAP = 6;
const EDGE = 16;
const NARROW = matchMedia('(max-width: 44rem)');
/** @type {WeakMap<Element, HTMLElement>} */
const invokers = new WeakMap();

/** Return the button that opened `pop` last. @param {Element} pop @returns {HTMLElement | undefined} */
export const invokerOf = (pop) => invokers.get(pop);

/** @param {HTMLElement} pop */
function place(pop) {
  const by = invokers.get(pop);
  const sheet = NARROW.matches && !pop.classList.contains('pop-menu');
  pop.classList.toggle('is-placed', !sheet && Boolean(by?.isConnected));
  if (sheet || !by?.isConnected) return;
  const a = by.getBoundingClientRect();
  const p = pop.getBoundingClientRect();
  const rtl = getComputedStyle(document.documentElement).direction === 'rtl';
  const noRoom = rtl ? a.right - p.width < EDGE : a.left + p.width > innerWidth - EDGE;
  let x = rtl !== noRoom ? a.right - p.width : a.left;
  let y = a.bottom + GAP;
  if (y + p.height > innerHeight - EDGE) y = Math.max(EDGE, a.top - p.height - GAP);
  x = Math.max(EDGE, Math.min(x, innerWidth - p.width - EDGE));
  pop.style.setProperty('--x', `${x}px`);
  pop.style.setProperty('--y', `${y}px`);
}

/** Look after every popover of the page, and buttons that are added later. */
export function startPopovers() {
  document.addEventListener('click', (event) => {
    const by = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[popovertarget]:not([popovertargetaction])'));
    const pop = by && document.getElementById(by.getAttribute('popovertarget') ?? '');
    if (by && pop) invokers.set(pop, by);
  }, { capture: true });
  for (const pop of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('.pop[popover]'))) watch(pop);
  const main = document.getElementById('main');
  // The side bar on a narrow screen is modal: the rest is inert while it is open.
  document.getElementById('side')?.addEventListener('toggle', (event) => { if (main) main.inert = /** @type {ToggleEvent} */ (event).newState === 'open'; });
  for (const button of document.querySelectorAll('dialog [data-close]')) button.addEventListener('click', () => button.closest('dialog')?.close());
  // A press on the veil closes a dialog, as it closes a popover.
  for (const dialog of document.querySelectorAll('dialog')) dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
}

/** @param {HTMLElement} pop */
function watch(pop) {
  const again = () => place(pop);
  pop.addEventListener('toggle', (event) => {
    const open = /** @type {ToggleEvent} */ (event).newState === 'open';
    invokers.get(pop)?.setAttribute('aria-expanded', String(open));
    if (open) {
      again();
      addEventListener('scroll', again, { passive: true });
      addEventListener('resize', again);
    } else {
      removeEventListener('scroll', again);
      removeEventListener('resize', again);
    }
  });
  // Tabbing past the end closes it, so that it never covers what has focus. A press on its own plain text gives
  // the focus to an element around it, which is no reason to close.
  pop.addEventListener('focusout', (event) => {
    const to = /** @type {Node | null} */ (event.relatedTarget);
    if (to && !pop.contains(to) && !to.contains(pop) && to !== invokers.get(pop)) pop.hidePopover();
  });
}
