// Widgets instead of plain fields: a list that can be searched, and a slider beside a number.
// A field keeps its name and its value; a widget shows it and sends `change` events of the field.

let facts = null;  // what is known of models and clusters, fetched when a list is first opened

async function fetchFacts() {
  if (facts === null) {
    facts = {};
    try {
      facts = await (await fetch('/answer/facts')).json();
    } catch (error) { facts = null; }
  }
  return facts || {};
}

export function changed(field) {
  field.dispatchEvent(new Event('change', {bubbles: true}));
}

function squeezed(text) {
  return text.toLowerCase().replace(/[-_\s]/g, '');
}

// A combobox (ARIA Authoring Practices, editable with list autocomplete) for a <select>.
export function addPicker(select) {
  const label = document.querySelector(`label[for="${CSS.escape(select.id)}"]`);
  const box = document.createElement('div'), input = document.createElement('input');
  const list = document.createElement('ul');
  const kind = select.name.split('.').pop();
  let active = -1, known = {}, whole = true;  // `whole`: every entry is shown, whatever is typed
  box.className = 'picker';
  input.id = select.id + '-pick';
  input.dataset.for = select.name;
  list.id = select.id + '-list';
  list.hidden = true;
  list.setAttribute('role', 'listbox');
  list.setAttribute('aria-label', label.textContent);
  for (const [name, value] of [['type', 'text'], ['role', 'combobox'], ['aria-expanded', 'false'],
    ['aria-controls', list.id], ['aria-autocomplete', 'list'], ['autocomplete', 'off'], ['spellcheck', 'false']])
    input.setAttribute(name, value);
  label.htmlFor = input.id;
  select.hidden = true;
  select.after(box);
  box.append(input, list);

  function sync() {
    input.value = select.value;
    input.placeholder = select.options[0].value ? '' : select.options[0].textContent;
  }
  // Names that begin with what is typed come first, those with the shortest rest before the others; then
  // names that hold it, and those of which only the description does, in the order of the list.
  function far(option, words) {
    const name = squeezed(option.value), typed = squeezed(words.join(''));
    if (name.startsWith(typed)) return name.length - typed.length;
    return words.every((word) => name.includes(squeezed(word))) ? 1000 : 2000;
  }
  function open(all) {
    whole = all;
    const words = all ? [] : input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = Array.from(select.options).filter((option) => {
      const text = (option.value + ' ' + (known[option.value] || '')).toLowerCase();
      return words.every((word) => text.includes(word) || squeezed(option.value).includes(squeezed(word)));
    });
    if (words.length) found.sort((one, other) => far(one, words) - far(other, words));
    list.replaceChildren(...found.map((option, place) => {
      const item = document.createElement('li'), about = document.createElement('small');
      item.id = `${list.id}-${place}`;
      item.setAttribute('role', 'option');
      item.setAttribute('aria-selected', String(option.value === select.value));
      item.dataset.value = option.value;
      item.textContent = option.textContent;
      about.textContent = known[option.value] || '';
      item.append(about);
      return item;
    }));
    if (!found.length) {
      const none = document.createElement('li');
      none.className = 'soft';
      none.textContent = 'Nothing in the catalogue matches.';
      list.append(none);
    }
    list.hidden = false;
    input.setAttribute('aria-expanded', 'true');
    move(all ? found.findIndex((option) => option.value === select.value) : 0);
  }
  function move(place) {
    const items = list.querySelectorAll('[role=option]');
    if (items[active]) items[active].classList.remove('active');
    active = items.length ? Math.max(0, Math.min(place, items.length - 1)) : -1;
    if (active < 0) { input.removeAttribute('aria-activedescendant'); return; }
    items[active].classList.add('active');
    items[active].scrollIntoView({block: 'nearest'});
    input.setAttribute('aria-activedescendant', items[active].id);
  }
  function close() {
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
    sync();
  }
  function take(value) {
    const other = value !== select.value;
    select.value = value;
    close();
    if (other) changed(select);
  }
  async function opened() {
    open(true);
    const all = await fetchFacts();
    if (all[kind] && known !== all[kind]) {
      known = all[kind];
      if (list.hidden) return;
      const at = active < 0 ? null : list.querySelectorAll('[role=option]')[active].dataset.value;
      open(whole);
      const place = Array.from(list.querySelectorAll('[role=option]')).findIndex((e) => e.dataset.value === at);
      if (place >= 0) move(place);
    }
  }
  input.addEventListener('focus', () => { input.select(); });
  input.addEventListener('click', () => { if (list.hidden) opened(); });
  input.addEventListener('input', (event) => {
    event.stopPropagation();  // what is typed to search is no change of the form
    if (list.hidden) opened();
    open(false);
  });
  input.addEventListener('change', (event) => event.stopPropagation());
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      if (list.hidden) opened(); else move(active + (event.key === 'ArrowDown' ? 1 : -1));
    } else if (event.key === 'Enter' && !list.hidden) {
      const item = list.querySelectorAll('[role=option]')[active];
      if (item) take(item.dataset.value);
    } else if (event.key === 'Escape' && !list.hidden) close();
    else return;
    event.preventDefault();
  });
  input.addEventListener('blur', () => {
    const typed = input.value;
    if (!list.hidden && Array.from(select.options).some((option) => option.value === typed)) take(typed);
    else close();
  });
  list.addEventListener('pointerdown', (event) => {
    event.preventDefault();  // the input keeps the focus
    const item = event.target.closest('[role=option]');
    if (item) take(item.dataset.value);
  });
  select.form.addEventListener('filled', sync);
  sync();
}

// A field that takes several names with commas between them: names are offered behind the last comma too.
export function offerSeveral(field) {
  const options = Array.from(field.list.options), names = options.map((option) => option.value);
  field.addEventListener('input', () => {
    const before = field.value.slice(0, field.value.lastIndexOf(',') + 1);
    options.forEach((option, place) => { option.value = before + names[place]; });
  });
}

// A slider over round values of a number. While it moves, `slide` events of the field are sent.
export function addSlider(field) {
  const stops = field.dataset.stops.split(' ').map(Number), range = document.createElement('input');
  const label = document.querySelector(`label[for="${CSS.escape(field.id)}"]`);
  range.type = 'range';
  range.min = 0;
  range.max = stops.length - 1;
  range.setAttribute('aria-label', label.firstChild.textContent.trim() + ', slider');
  function sync() {
    const value = Number(field.value) || stops[0];
    const far = stops.map((stop) => Math.abs(Math.log(stop / value)));
    range.value = far.indexOf(Math.min(...far));
    range.setAttribute('aria-valuetext', field.value);
  }
  range.addEventListener('input', (event) => {
    event.stopPropagation();
    field.value = stops[range.value];
    range.setAttribute('aria-valuetext', field.value);
    field.dispatchEvent(new Event('slide', {bubbles: true}));
  });
  range.addEventListener('change', (event) => { event.stopPropagation(); changed(field); });
  field.addEventListener('input', sync);
  field.form.addEventListener('filled', sync);
  field.after(range);
  sync();
}
