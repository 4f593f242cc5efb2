'use strict';
(function () {
  const data = JSON.parse(document.getElementById('data').textContent);
  const groups = Array.from(document.querySelectorAll('.time'));
  const UNITS = data.time_units, PASSES = ['forward', 'backward', 'weight gradients'];
  const HINT = groups.length ? line(groups[0]).textContent : '';
  let from = 0, to = 1;

  function seconds(value) {
    const size = Math.abs(value);
    if (size === 0) return '0 s';
    for (const [unit, scale] of [['d', 86400], ['h', 3600], ['min', 60]])
      if (size >= {d: 172800, h: 7200, min: 120}[unit]) return digits(value / scale) + ' ' + unit;
    const known = [['s', 1], ['ms', 1e-3], ['\u00b5s', 1e-6], ['ns', 1e-9]];
    const [unit, scale] = known.find((one) => size >= one[1] * 0.9995) || known[3];
    return digits(value / scale) + ' ' + unit;
  }
  function digits(value) { return String(Number(value.toPrecision(4))); }

  function show(start, end) {
    const span = Math.min(1, Math.max(1e-4, end - start));
    from = Math.min(Math.max(0, start), 1 - span);
    to = from + span;
    for (const group of groups) {
      const plot = group.querySelector('svg.plot');
      const box = plot.viewBox.baseVal;
      plot.setAttribute('viewBox', [from * UNITS, 0, span * UNITS, box.height].join(' '));
      drawTicks(group, plot, Number(group.dataset.end));
      line(group).textContent = resting(group);
    }
  }
  function line(group) { return group.parentElement.querySelector('.told'); }
  function resting(group) {
    const end = Number(group.dataset.end);
    return to - from === 1 ? HINT : 'Showing ' + seconds(from * end) + ' to ' + seconds(to * end) + '.';
  }
  function drawTicks(group, plot, end) {
    const ticks = group.querySelector('.ticks');
    const left = Number(plot.getAttribute('x')), width = Number(plot.getAttribute('width'));
    const y = Number(plot.getAttribute('height')) + 18;
    const low = from * end, high = to * end, rough = (high - low) / 8;
    const unit = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= rough * 0.999999);
    ticks.replaceChildren();
    for (let number = Math.ceil(low / step - 1e-9); number * step <= high * (1 + 1e-9); number++) {
      const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      text.setAttribute('x', String(left + (number * step - low) / (high - low) * width));
      text.setAttribute('y', String(y));
      text.setAttribute('text-anchor', 'middle');
      text.textContent = seconds(number * step);
      ticks.append(text);
    }
  }
  function zoom(ratio, at) { show(at - (at - from) * ratio, at + (to - at) * ratio); }
  function move(part) { const by = (to - from) * part; show(from + by, to + by); }
  const ACTIONS = {
    '+': () => zoom(0.5, (from + to) / 2), '-': () => zoom(2, (from + to) / 2), '0': () => show(0, 1),
    ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
  };
  ACTIONS['='] = ACTIONS['+'];

  function place(group, event) {
    const whole = group.querySelector('svg'), plot = whole.querySelector('svg.plot');
    const box = whole.getBoundingClientRect(), scale = box.width / whole.viewBox.baseVal.width;
    const [left, width, height] = ['x', 'width', 'height'].map((name) => Number(plot.getAttribute(name)));
    const across = ((event.clientX - box.left) / scale - left) / width;
    const down = (event.clientY - box.top) / scale / height;
    if (across < 0 || across > 1 || down < 0 || down > 1) return null;
    return {moment: from + across * (to - from), down: down};
  }
  function told(group, at) {
    const end = Number(group.dataset.end), stages = data.pipeline.stages;
    const row = Math.min(stages.length - 1, Math.floor(at.down * stages.length));
    const start = 'Stage ' + stages[row] + ' at ' + seconds(at.moment * end);
    const tasks = data.pipeline.tasks[row];
    if (!tasks || !group.querySelector('svg.tasks')) return start;
    const unit = at.moment * UNITS;
    for (let i = 0; i < tasks.length; i += 5)
      if (tasks[i + 3] <= unit && unit < tasks[i + 3] + tasks[i + 4])
        return start + ': ' + PASSES[tasks[i]] + ' of micro-batch ' + tasks[i + 2] +
          (tasks[i + 1] ? ', chunk ' + tasks[i + 1] : '') + ', ' + seconds(tasks[i + 4] / UNITS * end);
    return start + ': no task';
  }

  for (const group of groups) {
    group.addEventListener('keydown', (event) => {
      const action = event.ctrlKey || event.metaKey || event.altKey ? null : ACTIONS[event.key];
      if (action) { action(); event.preventDefault(); }
    });
    group.addEventListener('wheel', (event) => {
      const at = event.ctrlKey ? place(group, event) : null;
      if (at) { zoom(event.deltaY < 0 ? 0.8 : 1.25, at.moment); event.preventDefault(); }
    }, {passive: false});
    group.addEventListener('pointermove', (event) => {
      const at = place(group, event);
      line(group).textContent = at ? told(group, at) : resting(group);
    });
    group.addEventListener('pointerleave', () => { line(group).textContent = resting(group); });
  }
  for (const button of document.querySelectorAll('button[data-key]')) {
    button.disabled = false;
    button.addEventListener('click', () => ACTIONS[button.dataset.key]());
  }

  function valueOf(row, column) {
    const cell = row.cells[column], number = cell.querySelector('data');
    return number ? Number(number.value) : cell.textContent;
  }
  function sort(table, column, head) {
    const rising = head.getAttribute('aria-sort') === 'descending';
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort((one, other) => {
      const [a, b] = [valueOf(one, column), valueOf(other, column)];
      const numbers = typeof a === 'number' && typeof b === 'number';
      const order = numbers ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true});
      return rising ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }
  for (const table of document.querySelectorAll('table.sorts'))
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const button = document.createElement('button');
      button.type = 'button';
      if (!head.textContent) return;
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => sort(table, column, head));
    });
  window.addEventListener('beforeprint', () => {
    for (const each of document.querySelectorAll('details')) each.open = true;
  });
})();
