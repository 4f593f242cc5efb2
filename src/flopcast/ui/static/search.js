// A search while it runs: a drawing of the plans that are simulated already, and a button that stops it.

const NS = 'http://www.w3.org/2000/svg', WIDTH = 1000, HEIGHT = 420, EDGE = 90;

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text) made.textContent = text;
  return made;
}

const WIDE_RATIO = 10;  // of the largest value to the smallest: the axis is then logarithmic

// An axis over values: where each is drawn, and which are the smallest and the largest.
function axis(points, place, start, end) {
  const values = points.map((point) => point[place]);
  const low = Math.min(...values), high = Math.max(...values);
  const scale = low > 0 && high > WIDE_RATIO * low ? Math.log : (value) => value;
  const span = scale(high) - scale(low) || Math.abs(scale(high)) || 1, margin = 0.05 * span;
  const at = (value) => start + (scale(value) - scale(low) + margin) / (span + 2 * margin) * (end - start);
  return {at, ends: [low, high].map((value) => points[values.indexOf(value)])};
}

// Points that no other point beats in both values, from the left to the right.
function frontOf(points) {
  let least = Infinity;
  return Array.from(points).sort((one, other) => one[0] - other[0] || one[1] - other[1])
    .filter((point) => point[1] < least && ((least = point[1]), true));
}

function drawing(message) {
  const points = message.points;
  const svg = element('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img'});
  svg.append(element('title', {}, `${points.length} simulated plans so far`));
  const across = axis(points, 0, EDGE, WIDTH - 20), up = axis(points, 1, HEIGHT - 50, 16);
  svg.append(element('path', {class: 'grid', d: `M${EDGE},16V${HEIGHT - 50}H${WIDTH - 20}`}));
  for (const point of across.ends)
    svg.append(element('text', {x: across.at(point[0]), y: HEIGHT - 30, 'text-anchor': 'middle'}, point[2]));
  for (const point of up.ends)
    svg.append(element('text', {x: EDGE - 8, y: up.at(point[1]) + 4, 'text-anchor': 'end'}, point[3]));
  svg.append(element('text', {class: 'soft', x: WIDTH / 2, y: HEIGHT - 8, 'text-anchor': 'middle'},
    `${message.axes[0]} (across) and ${message.axes[1]} (up)`));
  const best = frontOf(points);
  for (const point of points) {
    const dot = element('circle', {class: best.includes(point) ? 'hue-0' : 'hue-7', r: best.includes(point) ? 5 : 4,
      cx: across.at(point[0]), cy: up.at(point[1])});
    dot.append(element('title', {}, `${point[4]}: ${point[2]}, ${point[3]}`));
    svg.append(dot);
  }
  return {svg, best};
}

// Return the page's part for a message of a running search.
export function live(message) {
  const part = document.createElement('div'), about = document.createElement('p');
  part.className = 'live';
  about.textContent = message.best ? `Best so far, ${message.best}` : '';
  part.append(about);
  if (message.points.length) {
    const {svg, best} = drawing(message), figure = document.createElement('figure');
    const scroll = document.createElement('div'), list = document.createElement('ol');
    scroll.className = 'scroll';
    scroll.append(svg);
    figure.append(scroll);
    for (const point of best.slice(0, 8)) {
      const item = document.createElement('li'), link = document.createElement('a');
      link.href = point[5];
      link.textContent = point[4];
      item.append(link, `: ${point[2]}, ${point[3]}`);
      list.append(item);
    }
    part.append(figure, list);
  }
  return part;
}
