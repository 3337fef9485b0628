// Plots of what this node remembers, drawn as SVG. The numbers come from `/v1/admin/history`.

import { el, svg, thousands, utcTime } from './page.js';

const HOUR = 3_600_000;
const [WIDTH, HEIGHT] = [600, 120];
/** Namespaces with a line of their own. */
const NAMESPACES = 4;

/** Returns the plots of a history, or a sentence if it has no sample yet. */
export function plots({ at_unix_ms, every_ms, samples }) {
  if (samples.length === 0) return el('p', { class: 'quiet' }, `The first point comes ${every_ms / 1000} s after the start of the node.`);
  const line = (name, value) => ({ name, values: samples.map(value) });
  const seconds = (value) => `${thousands(Number(value.toPrecision(3)))} s`;
  const ms = (value) => `${thousands(Number(value.toPrecision(3)))} ms`;
  return [
    ['Ids a second', ids(samples), (value) => thousands(Number(value.toPrecision(3)))],
    ['Time of a call to the store', [line('mean', (it) => it.store_ms), line('slowest', (it) => it.store_slowest_ms)], ms],
    ['Shortest time that a lease had left', [line('left', (it) => it.lease_left_s)], seconds],
    [`Errors in ${every_ms / 1000} s`, [line('calls to the store', (it) => it.store_errors), line('requests', (it) => it.failed_requests)], (value) => thousands(value)],
  ].map(([title, lines, format]) => plot(title, lines, format, samples.map((it) => it.at_unix_ms), at_unix_ms, every_ms));
}

/** A line for each of the namespaces with the most ids, and one for all others. */
function ids(samples) {
  const sums = new Map();
  for (const { namespaces } of samples) for (const [name, rate] of namespaces) sums.set(name, (sums.get(name) ?? 0) + rate);
  const first = [...sums].sort((one, other) => other[1] - one[1]).slice(0, NAMESPACES).map(([name]) => name);
  const rate = (sample, name) => sample.namespaces.find(([it]) => it === name)?.[1] ?? 0;
  const lines = first.map((name) => ({ name, values: samples.map((sample) => rate(sample, name)) }));
  const rest = samples.map((sample) => Math.max(sample.ids_per_second - first.reduce((sum, name) => sum + rate(sample, name), 0), 0));
  // Sums of rounded numbers may differ a little.
  if (first.length === 0 || rest.some((value) => value > 0.5)) lines.push({ name: first.length === 0 ? 'all' : 'others', values: rest });
  return lines;
}

/** The least number above with one digit of 1, 2 or 5. */
function above(value) {
  const size = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((digit) => digit * size).find((it) => it >= value) ?? 10 * size;
}

function plot(title, lines, format, times, now, every) {
  const known = lines.map(({ values }) => values.filter((value) => value !== undefined));
  const most = above(Math.max(0, ...known.flat()));
  const x = (time) => (1 - (now - time) / HOUR) * WIDTH;
  const y = (value) => HEIGHT - (value / most) * HEIGHT;
  const path = (values) => values.map((value, at) => {
    if (value === undefined || x(times[at]) < 0) return '';
    const follows = at > 0 && values[at - 1] !== undefined && x(times[at - 1]) >= 0 && times[at] - times[at - 1] < 2 * every;
    // A point alone is a short line.
    return `${follows ? 'L' : 'M'}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}${follows ? '' : 'h.1'}`;
  }).join('');
  const last = (values) => { const value = values.findLast((it) => it !== undefined); return value === undefined ? 'none' : format(value); };
  const said = lines.map(({ name, values }, at) => `${name}: now ${last(values)}, at most ${known[at].length === 0 ? 'none' : format(Math.max(...known[at]))}`).join('; ');
  const cursor = svg('line', { class: 'cursor', y1: 0, y2: HEIGHT, x1: -1, x2: -1 });
  const drawn = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title} in the last hour. ${said}` },
    [0, 1, 2, 3, 4].map((quarter) => svg('line', { class: 'grid', x1: quarter * WIDTH / 4, x2: quarter * WIDTH / 4, y1: 0, y2: HEIGHT })),
    [0, 0.5, 1].map((share) => svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: share * HEIGHT, y2: share * HEIGHT })),
    lines.map(({ values }, at) => svg('path', { class: `line l${at}`, d: path(values) })), cursor);
  const shown = lines.map(({ values }) => el('b', {}, last(values)));
  const when = el('span', {}, 'now');
  const show = (at) => {
    when.textContent = at === undefined ? 'now' : utcTime(times[at]);
    for (const [number, { values }] of lines.entries()) shown[number].textContent = at === undefined ? last(values) : values[at] === undefined ? 'none' : format(values[at]);
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, at === undefined ? -1 : x(times[at]));
  };
  drawn.addEventListener('pointermove', (event) => {
    const { left, width } = drawn.getBoundingClientRect();
    const time = now - (1 - (event.clientX - left) / width) * HOUR;
    show(times.reduce((best, it, at) => (Math.abs(it - time) < Math.abs(times[best] - time) ? at : best), 0));
  });
  drawn.addEventListener('pointerleave', () => show());
  return el('figure', { class: 'plot' },
    el('figcaption', {}, el('h3', {}, title), el('p', { class: 'legend' }, lines.map(({ name }, at) => el('span', { class: `key l${at}` }, `${name} `, shown[at])))),
    el('div', { class: 'drawn' }, el('span', { class: 'most' }, format(most)), drawn),
    el('div', { class: 'axis' }, el('span', {}, '60 minutes ago'), when));
}
