// What an automatic check of accessibility finds on the page as it is shown, as a list of faults: contrast of
// text and placeholders (WCAG 2.2, 1.4.3), edges of fields (1.4.11), size of controls (2.5.8), names (4.1.2),
// references, headings, order of the keyboard (2.4.3), and controls that something covers (2.4.11).
// Colours depend on the scheme, and the rest on the width: each is judged if it is asked for.
({colours, layout}) => {
  const found = [];
  const say = (kind, e, about = '') => found.push(`${kind} ${about} ${e.outerHTML.slice(0, 110)}`);
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : Math.pow((c / 255 + 0.055) / 1.055, 2.4));
  const parsed = (colour) => (colour.match(/[0-9.]+/g) || []).map(Number);
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const grounds = new Map();
  const ground = (e) => {
    if (!e) return [255, 255, 255];
    if (!grounds.has(e)) {
      const colour = parsed(getComputedStyle(e).backgroundColor);
      grounds.set(e, colour.length < 4 || colour[3] > 0 ? colour : ground(e.parentElement));
    }
    return grounds.get(e);
  };
  const contrast = (kind, e, colour, behind, least) => {
    const reached = ratio(parsed(colour), ground(behind));
    if (reached < least) say(kind, e, reached.toFixed(2));
  };
  const visible = (e) => e.checkVisibility({contentVisibilityAuto: true}) && !e.closest('.hidden');

  for (const e of colours ? all('body *') : []) {
    const svg = e.closest('svg'), text = e.tagName === 'text' || e.tagName === 'tspan';
    if (e.disabled || e.tagName === 'OPTION' || (svg ? !text : !visible(e))) continue;
    if (!Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e);
    contrast('text', e, svg ? style.fill : style.color, svg ? svg.parentElement : e, 4.5);
  }
  for (const e of colours ? all('input, textarea, select').filter(visible) : []) {
    if (e.placeholder) contrast('placeholder', e, getComputedStyle(e, '::placeholder').color, e, 4.5);
    if (!['range', 'checkbox', 'file'].includes(e.type))
      contrast('edge', e, getComputedStyle(e).borderTopColor, e.parentElement, 3);
  }

  if (!layout) return found;
  const named = (e) => (e.getAttribute('aria-label') || e.textContent || '').trim() || (e.labels || []).length;
  for (const e of all('a, button, input, select, textarea, summary, svg[role=img], [role=group], nav'))
    if (e.type !== 'hidden' && !named(e) && !e.getAttribute('aria-labelledby')) say('no name', e);
  for (const name of ['aria-controls', 'aria-labelledby', 'aria-describedby', 'aria-activedescendant', 'for'])
    for (const e of all(`[${name}]`))
      for (const id of e.getAttribute(name).split(' '))
        if (!document.getElementById(id)) say('leads nowhere', e, id);
  const ids = all('[id]').map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`id twice ${id}`);
  let level = 0;
  for (const e of all('h1, h2, h3, h4, h5, h6')) {
    if (Number(e.tagName[1]) > level + 1) say('heading', e, `after level ${level}`);
    level = Number(e.tagName[1]);
  }
  for (const e of all('[tabindex]')) if (e.tabIndex > 0) say('order of the keyboard', e);
  if (all('main').length !== 1 || !document.title || !document.documentElement.lang) found.push('no title or main');
  if (document.documentElement.scrollWidth > innerWidth) found.push('wider than the window');

  const controls = all('header a, header button, .opening a, .toolbar *, form *, #answer a.button, #answer button')
    .filter((e) => e.matches('a, button, input, select, textarea, summary') && visible(e) && !e.disabled);
  for (const e of controls) {
    const box = e.getBoundingClientRect();
    const inline = getComputedStyle(e).display === 'inline' || e.closest('th') || e.type === 'checkbox';
    if (!inline && Math.min(box.width, box.height) < 24) say('small', e, `${box.width} x ${box.height}`);
    e.scrollIntoView({block: 'center', behavior: 'instant'});
    const now = e.getBoundingClientRect();
    const hit = document.elementFromPoint(now.left + now.width / 2, now.top + now.height / 2);
    if (!hit || !(e.contains(hit) || hit.contains(e) || hit.closest('[role=listbox]'))) say('covered', e, hit ? hit.outerHTML.slice(0, 60) : '');
  }
  scrollTo(0, 0);
  return found;
}
