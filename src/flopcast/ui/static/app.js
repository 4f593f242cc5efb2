'use strict';
// What a page does without being loaded again: every change of its form is answered at once.
(function () {
  const main = document.querySelector('main'), page = main.dataset.page;
  const form = document.getElementById('form'), answer = document.getElementById('answer');
  const told = document.getElementById('told');
  let asking = null, waiting = null, events = null;

  for (const each of document.querySelectorAll('.scripted')) each.hidden = false;
  if (page === 'upload') upload();
  if (!form) return;

  function words(extra) {
    const found = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) found.append(name, value);
    for (const [name, value] of Object.entries(extra || {})) found.set(name, value);
    return found;
  }
  function keep(query) {
    history.replaceState(null, '', form.getAttribute('action') + (query ? '?' + query : ''));
    for (const link of document.querySelectorAll('a.file')) link.href = link.dataset.path + '?' + query;
    const others = document.querySelector('header nav');
    if (page === 'predict')
      for (const link of others.querySelectorAll('a')) {
        const path = new URL(link.href).pathname;
        const own = new URLSearchParams(query), more = new URLSearchParams();
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

  const KEPT = ['gbs', 'precision'];
  async function ask(choose) {
    if (asking) asking.abort();
    const mine = asking = new AbortController();
    const query = words();
    if (choose)
      for (const field of form.elements)
        if (field.closest('[data-plan]') && !KEPT.includes(field.name)) query.delete(field.name);
    const late = setTimeout(() => state('working…'), 150);
    try {
      const response = await fetch('/answer/' + page + '?' + query, {signal: mine.signal});
      const made = await response.json();
      if (response.status === 503) { state('busy, trying again…'); setTimeout(() => ask(choose), 1000); return; }
      if (response.ok && (choose || made.chosen)) fill(made.fields);
      show(made);
      keep(words().toString());
      state('');
    } catch (error) {
      if (error.name !== 'AbortError') state('The server does not answer.');
    } finally { clearTimeout(late); }
  }

  function search() {
    if (events) events.close();
    const query = words();
    keep(words({go: '1'}).toString());
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

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (page === 'search') search();
    else ask(Boolean(event.submitter && event.submitter.name === 'choose'));
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
      waiting = setTimeout(ask, 200, false);
    });
    form.addEventListener('change', (event) => {
      if (event.target.type === 'file') return;  // a log is no word of the job
      clearTimeout(waiting);
      ask(false);
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
    const file = document.getElementById('file');
    file.addEventListener('change', async () => {
      if (!file.files.length) return;
      document.getElementById('name').value = file.files[0].name;
      document.getElementById('text').value = await file.files[0].text();
    });
  }
})();
