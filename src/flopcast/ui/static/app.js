'use strict';
// What a page does without being loaded again: every change of its form is answered at once.
(function () {
  const main = document.querySelector('main'), page = main.dataset.page;
  const form = document.getElementById('form'), answer = document.getElementById('answer');
  const told = document.getElementById('told');
  let asking = null, waiting = null, events = null, edited = null;
  let here = location.pathname + location.search;

  for (const each of document.querySelectorAll('.scripted')) each.hidden = false;
  if (page === 'upload') upload();
  if (!form) return;

  function words(extra) {
    const found = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) found.append(name, value);
    for (const [name, value] of Object.entries(extra || {})) found.set(name, value);
    return found;
  }
  // Each changed field is one step back; further letters in the same field are not.
  function keep(query, field) {
    const address = form.getAttribute('action') + (query ? '?' + query : '');
    if (address !== location.pathname + location.search)
      history[field && field !== edited ? 'pushState' : 'replaceState'](null, '', address);
    if (field) edited = field;
    here = address;
    for (const link of document.querySelectorAll('a.file')) link.href = link.dataset.path + '?' + query;
    const others = document.querySelector('header nav');
    if (page === 'predict')
      for (const link of others.querySelectorAll('a')) {
        const path = new URL(link.href).pathname;
        const own = new URLSearchParams(query), more = new URLSearchParams();
        own.delete('chosen');
        if (path === '/compare')
          for (const side of ['a.', 'b.']) for (const [name, value] of own) more.append(side + name, value);
        else for (const [name, value] of own) more.append(name, value);
        link.href = path + '?' + more;
      }
  }
  function show(made) {
    const open = {};
    for (const part of answer.querySelectorAll('details[id]')) open[part.id] = part.open;
    answer.innerHTML = made.html;
    answer.dataset.shown = String(Number(answer.dataset.shown || 0) + 1);
    for (const part of answer.querySelectorAll('details[id]'))
      if (part.id in open) part.open = open[part.id];
  }
  function fill(fields) {
    for (const [name, value] of Object.entries(fields)) {
      const field = form.elements[name];
      if (!field) continue;
      if (field.tagName === 'SELECT' && value && !Array.from(field.options).some((o) => o.value === value))
        field.add(new Option(value, value));
      field.value = value;
    }
  }
  function state(text) {
    told.textContent = text;
    answer.setAttribute('aria-busy', text ? 'true' : 'false');
  }

  async function ask(choose, field) {
    if (asking) asking.abort();
    const mine = asking = new AbortController();
    const query = words(choose ? {choose: '1'} : {});
    const late = setTimeout(() => state('working…'), 150);
    try {
      const response = await fetch('/answer/' + page + '?' + query, {signal: mine.signal});
      const made = await response.json();
      if (response.status === 503) { state('busy, trying again…'); setTimeout(() => ask(choose, field), 1000); return; }
      fill(made.form);
      show(made);
      keep(words().toString(), field);
      state('');
    } catch (error) {
      if (error.name !== 'AbortError') state('The server does not answer.');
    } finally { clearTimeout(late); }
  }

  function search() {
    if (events) events.close();
    const query = words();
    keep(words({go: '1'}).toString(), 'search');
    state('screening…');
    events = new EventSource('/answer/search?' + query);
    const mine = events;
    events.addEventListener('told', (event) => { if (mine === events) state(event.data); });
    events.addEventListener('answer', (event) => {
      mine.close();
      if (mine !== events) return;
      show(JSON.parse(event.data));
      state('');
    });
    events.onerror = () => { mine.close(); state('The server does not answer.'); };
  }

  addEventListener('popstate', () => {  // the address is the state of the page
    if (location.pathname + location.search !== here) location.reload();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (page === 'search') search();
    else if (event.submitter && event.submitter.name === 'choose') ask(true, 'choose');
    else ask(false);
  });
  const DEALT = ['model', 'pp', 'vpp', 'schedule'];
  function redeal(event) {  // blocks that were dealt out to other stages say nothing of these
    const name = event.target.name || '', prefix = name.slice(0, name.lastIndexOf('.') + 1);
    const plan = form.elements[prefix + 'plan'];
    if (plan && DEALT.includes(name.slice(prefix.length)))
      plan.value = plan.value.replace(/stage_layers=\S+\s*/, '').trim();
  }
  if (page !== 'search') {
    form.addEventListener('input', (event) => {
      if (event.target.type === 'file') return;
      redeal(event);
      if (event.target.tagName === 'SELECT' || event.target.type === 'checkbox') return;
      clearTimeout(waiting);
      waiting = setTimeout(ask, 200, false, event.target.name);
    });
    form.addEventListener('change', (event) => {
      if (event.target.type === 'file') return;  // a log is no word of the job
      clearTimeout(waiting);
      ask(false, event.target.name);
    });
  } else if (new URLSearchParams(location.search).has('go')) search();
  const log = document.getElementById('log');
  if (log) log.addEventListener('change', async () => {
    if (!log.files.length) return;
    state('reading…');
    const response = await fetch('/answer/log?' + words(), {method: 'POST', body: await log.files[0].slice(0, 262144).text()});
    show(await response.json());
    state('');
  });

  function upload() {
    const most = 262144, name = document.getElementById('name'), text = document.getElementById('text');
    document.getElementById('upload').addEventListener('submit', (event) => {
      if (new URLSearchParams([['name', name.value], ['text', text.value]]).toString().length < most) return;
      event.preventDefault();
      told.textContent = 'The file is larger than 256 KiB.';
    });
    const file = document.getElementById('file');
    file.addEventListener('change', async () => {
      if (!file.files.length) return;
      name.value = file.files[0].name;
      text.value = await file.files[0].text();
    });
  }
})();
