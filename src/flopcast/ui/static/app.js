// What a page does without being loaded again: every change of its form is answered at once.
import {live} from './search.js';
import {MOST_BYTES, upload} from './upload.js';
import {addPicker, addSlider, offerSeveral} from './widgets.js';

const main = document.querySelector('main'), page = main.dataset.page;
const form = document.getElementById('form'), answer = document.getElementById('answer');
const told = document.getElementById('told');
for (const each of document.querySelectorAll('.scripted')) each.hidden = false;
chooseScheme(document.getElementById('scheme'));
for (const each of document.querySelectorAll('select[data-picker]')) addPicker(each);
for (const each of document.querySelectorAll('input[list]')) offerSeveral(each);
if (page === 'upload') upload(told);
if (form) work();

function chooseScheme(button) {
  const names = ['auto', 'light', 'dark'], root = document.documentElement;
  function show() {
    const now = root.dataset.scheme || 'auto';
    button.textContent = `Colours: ${now}`;
    button.setAttribute('aria-label', `Colours: ${now === 'auto' ? 'as the system' : now}`);
  }
  button.addEventListener('click', () => {
    const next = names[(names.indexOf(root.dataset.scheme || 'auto') + 1) % names.length];
    if (next === 'auto') delete root.dataset.scheme; else root.dataset.scheme = next;
    try {
      if (next === 'auto') localStorage.removeItem('scheme'); else localStorage.setItem('scheme', next);
    } catch (error) { /* storage is disabled: the choice lasts as long as the page */ }
    show();
  });
  show();
}

function work() {
  let asking = null, waiting = null, events = null, edited = null, sliding = false, advising = null, last = null;
  const states = {}, heights = {};  // of parts: whether they are unfolded, and their heights in full

  for (const each of form.querySelectorAll('input[data-stops]')) addSlider(each);

  function words(extra) {
    const found = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) found.append(name, value);
    for (const [name, value] of Object.entries(extra || {})) found.set(name, value);
    return found;
  }
  // What is unfolded and in view. The answer has only the headings of other parts, which are asked for when
  // they are unfolded or come into view; `more` asks for these and keeps the parts that are there.
  function parts(more) {
    const open = Array.from(answer.querySelectorAll('details[id^=part-][open]'));
    const shown = open.filter((part) => (more && !('later' in part.dataset)) || inView(part));
    return page === 'predict' && open.length ? {parts: ['answer', ...shown.map((part) => part.id.slice(5))].join(' ')} : {};
  }
  function inView(part) {
    const box = part.getBoundingClientRect();
    return box.top < innerHeight + 100 && box.bottom > -100;
  }
  const scrolledTo = new IntersectionObserver((seen) => {
    if (!asking && seen.some((each) => each.isIntersecting)) ask({more: true});
  });
  // Each changed field is one step back; further letters in the same field are not.
  function keep(query, field, links = {}) {
    const address = form.getAttribute('action') + (query ? '?' + query : '');
    if (address !== location.pathname + location.search)
      history[field && field !== edited ? 'pushState' : 'replaceState'](null, '', address);
    if (field) edited = field;
    window.shownAddress = address;
    for (const link of document.querySelectorAll('header nav a, .toolbar nav a'))
      link.href = links[new URL(link.href).pathname] || link.href;
  }
  function show(made, more) {
    const before = document.getElementById('advice');
    for (const part of answer.querySelectorAll('details[id]')) {
      states[part.id] = part.open;
      if (!('later' in part.dataset)) heights[part.id] = part.offsetHeight;
    }
    answer.innerHTML = made.html;
    if (!more) answer.dataset.shown = String(Number(answer.dataset.shown || 0) + 1);  // answers to changes
    scrolledTo.disconnect();
    for (const part of answer.querySelectorAll('details[id]')) {
      if (part.id in states) part.open = states[part.id];
      if (!part.open || !('later' in part.dataset)) continue;
      part.style.minHeight = `${heights[part.id] || 0}px`;  // what is below stays where it is
      scrolledTo.observe(part);
    }
    const place = document.getElementById('advice');
    if (place) {
      place.hidden = false;
      if (before) place.replaceChildren(...before.childNodes);  // until the new advice is there
    }
    mark();
  }
  // Fields that the answer names as wrong, and the number that a narrow screen shows below the form.
  function mark() {
    for (const field of form.querySelectorAll('[aria-invalid]')) field.removeAttribute('aria-invalid');
    for (const link of answer.querySelectorAll('a[data-field]')) {
      const field = form.elements[link.dataset.field];
      if (!field) continue;
      const shown = document.getElementById(field.id + '-pick') || field;
      shown.setAttribute('aria-invalid', 'true');
      link.addEventListener('click', (event) => {
        const folded = field.closest('details');
        if (folded) folded.open = true;
        shown.focus();
        event.preventDefault();
      });
    }
    for (const button of answer.querySelectorAll('[data-fill]')) {
      const fields = Object.fromEntries(new URLSearchParams(button.dataset.fill));
      button.hidden = Object.keys(fields).some((name) => !form.elements[name]);
      button.addEventListener('click', () => { fill(inPlan(fields)); if (page === 'search') search(); else ask(); });
    }
    for (const { name, value } of answer.querySelector('#advice, #used')?.attributes || []) {
      const field = name.startsWith('data-used-') && document.getElementById('field-' + name.slice(10));
      if (field) field.placeholder = value;
    }
    const glance = document.getElementById('glance');
    const tiles = answer.querySelectorAll('.tiles dd'), faults = answer.querySelectorAll('.faults ul:not(.changes) li').length;
    if (!glance) return;
    if (tiles.length > 1)
      glance.textContent = `${tiles[0].firstChild.textContent} a step · ${tiles[1].firstChild.textContent}`;
    else if (answer.querySelector('.faults'))
      glance.textContent = faults ? `${faults} error${faults > 1 ? 's' : ''} in the input` : 'No answer: see why';
    else glance.textContent = 'To the answer';
  }
  // Fields of a plan that the text of the plan states are changed in this text.
  function inPlan(fields) {
    const rest = {...fields}, plan = form.elements.plan;
    for (const [name, value] of Object.entries(fields)) {
      const stated = new RegExp(`(^|\\s)${name}=\\S+`);
      if (!plan || !stated.test(plan.value)) continue;
      rest.plan = (rest.plan || plan.value).replace(stated, `$1${name}=${value}`);
      delete rest[name];
    }
    return rest;
  }
  function fill(fields, notes) {
    for (const [name, value] of Object.entries(fields)) {
      const field = form.elements[name];
      if (!field) continue;
      if (field.tagName === 'SELECT' && value && !Array.from(field.options).some((o) => o.value === value))
        field.add(new Option(value, value));
      field.value = value;
    }
    form.dispatchEvent(new Event('filled'));
    const shown = form.querySelectorAll('.note');
    (notes || []).forEach((note, place) => { if (shown[place]) shown[place].textContent = note; });
  }
  // After a button was pressed below the answer's start, the answer comes into sight.
  function reveal() {
    const box = answer.getBoundingClientRect();
    if (box.top < 0 || box.top > innerHeight * 0.7) answer.scrollIntoView({block: 'start'});
  }
  function state(text) {
    told.textContent = text;
    answer.setAttribute('aria-busy', text ? 'true' : 'false');
  }

  // Ask for the answer to the form. `hold` keeps the plan while a slider moves, and shows no errors.
  async function ask({choose = false, field = null, hold = false, more = false} = {}) {
    if (asking) asking.abort();
    if (advising) advising.abort();
    const mine = asking = new AbortController();
    last = hold || choose ? null : words().toString();
    const query = words({...parts(more), ...(hold ? {hold: '1'} : choose ? {choose: '1'} : {})});
    const late = setTimeout(() => state('working…'), 150);
    try {
      const response = await fetch('/answer/' + page + '?' + query, {signal: mine.signal});
      const made = await response.json();
      if (response.status === 503) {
        state('busy, trying again…');
        setTimeout(() => ask({choose, field, hold, more}), 1000);
        return;
      }
      if (hold && response.status !== 200) return;
      if (!hold) fill(made.form, made.notes);
      show(made, more);
      if (!hold) keep(words().toString(), field, made.links);
      state('');
      if (!hold && !more) advise();
    } catch (error) {
      if (error.name !== 'AbortError') state('The server does not answer.');
    } finally {
      clearTimeout(late);
      if (asking === mine) asking = null;
    }
  }

  // The change that would help most takes some predictions more: it follows the answer.
  async function advise() {
    const place = document.getElementById('advice');
    if (!place || !document.querySelector('#answer .tiles')) return;
    const mine = advising = new AbortController();
    if (!place.childNodes.length) place.textContent = 'Looking for the change that would help most…';
    try {
      const response = await fetch('/answer/advice?' + words(), {signal: mine.signal});
      const made = await response.json();
      const there = document.getElementById('advice');
      if (there) there.innerHTML = response.status === 200 ? made.html : '';
    } catch (error) { /* a newer question, or no server: there is no advice */ }
  }

  function search() {
    if (events) events.close();
    const query = words(), stop = document.getElementById('stop');
    keep(words({go: '1'}).toString(), 'search');
    state('screening…');
    stop.disabled = false;
    events = new EventSource('/answer/search?' + query);
    const mine = events, points = [];
    function end(text) {
      mine.close();
      if (mine !== events) return;
      stop.disabled = true;
      state(text);
    }
    mine.addEventListener('told', (event) => {
      if (mine !== events) return;
      const message = JSON.parse(event.data);
      points.push(...message.points);
      told.textContent = message.text;
      if (points.length || message.best) answer.replaceChildren(live({...message, points}));
      answer.setAttribute('aria-busy', 'false');
    });
    mine.addEventListener('answer', (event) => {
      if (mine !== events) return;
      show(JSON.parse(event.data));
      end('');
    });
    mine.onerror = () => end('The server does not answer.');
    stop.onclick = () => end(`Stopped after ${told.textContent.split(/, |; /)[0]}.`);
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    reveal();
    if (page === 'search') search();
    else if (event.submitter && event.submitter.name === 'choose') ask({choose: true, field: 'choose'});
    else ask();
  });
  const DEALT = ['model', 'pp', 'vpp', 'schedule'];
  function redeal(event) {  // a list of blocks of each stage is no longer right if one of these changes
    const name = event.target.name || '', prefix = name.slice(0, name.lastIndexOf('.') + 1);
    const plan = form.elements[prefix + 'plan'];
    if (plan && DEALT.includes(name.slice(prefix.length)))
      plan.value = plan.value.replace(/stage_layers=\S+\s*/, '').trim();
  }
  if (page !== 'search') {
    form.addEventListener('input', (event) => {
      redeal(event);
      if (asking) asking.abort();  // its answer would overwrite what is being typed
      if (event.target.tagName === 'SELECT' || event.target.type === 'checkbox') return;
      clearTimeout(waiting);
      waiting = setTimeout(() => ask({field: event.target.name}), 80);
    });
    form.addEventListener('change', (event) => {
      redeal(event);
      clearTimeout(waiting);
      // what was typed is answered already: another answer would replace a link that is being clicked
      if (words().toString() === last) return;
      ask({field: event.target.name});
    });
    form.addEventListener('slide', async () => {  // one question at a time: the last one wins
      if (sliding) { sliding = 'again'; return; }
      do {
        sliding = true;
        await ask({hold: true});
      } while (sliding === 'again');
      sliding = false;
    });
  } else if (new URLSearchParams(location.search).has('go')) search();
  const log = document.getElementById('log');
  if (log) log.addEventListener('change', async () => {
    if (!log.files.length) return;
    const [file] = log.files;
    state('reading…');
    try {
      const body = await file.slice(0, MOST_BYTES).text();
      show(await (await fetch('/answer/log?' + words(), {method: 'POST', body})).json());
      state('');
      if (file.size > MOST_BYTES) told.textContent = 'Only the first 256 KiB of the log were read.';
    } catch (error) { state('The server does not answer.'); }
    log.value = '';  // the same file can be chosen again
  });
  const share = document.getElementById('share');
  if (share) share.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      share.textContent = 'Copied';
    } catch (error) { share.textContent = 'Copy the address of this page'; }
    setTimeout(() => { share.textContent = 'Copy link'; }, 2500);
  });
  answer.addEventListener('toggle', (event) => {
    if (event.target.open && 'later' in event.target.dataset && inView(event.target)) ask({more: true});
  }, true);
  mark();
  if (page === 'predict') advise();
}
