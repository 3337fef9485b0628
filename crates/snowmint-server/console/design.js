// Design: edits a layout with sliders. The server computes its properties (`/v1/layout`); this page only moves its fields.

import { $, age, banner, code, drawing, el, explain, fill, request, roughly, span, swatch, thousands } from './page.js';

const FIELDS = ['time', 'datacenter', 'worker', 'generation', 'sequence'];
const MOST = { time: 62, datacenter: 31, worker: 31, generation: 31, sequence: 31 };
const TICKS = [[1, '1 ms'], [2, '2 ms'], [5, '5 ms'], [10, '10 ms'], [100, '100 ms'], [256, '256 ms'], [1000, '1 s'], [10_000, '10 s'], [60_000, '1 minute']];
const USUAL = 'time:41 worker:10 sequence:12 epoch:2026-01-01';

let running;
let timer;
let layouts = [];
/** The fields in their order from the top bit down, the tick and the epoch. */
let design = { fields: [{ name: 'time', bits: 41 }, { name: 'worker', bits: 10 }, { name: 'sequence', bits: 12 }], tick: 1, epoch: '2026-01-01' };

export function start(server) {
  fill($('design-tick'), TICKS.map(([ms, name]) => el('option', { value: ms }, name)));
  server.then((known) => {
    layouts = known.layouts;
    fill($('design-preset'), el('option', { value: '' }, 'a layout of your own'), layouts.map(({ name, about }) => el('option', { value: name }, `${name} — ${about}`)));
    markPreset();
  });
  $('design-preset').addEventListener('change', () => go($('design-preset').value || USUAL));
  $('design-tick').addEventListener('change', () => { design.tick = Number($('design-tick').value); changed(); });
  $('design-epoch').addEventListener('change', () => { design.epoch = $('design-epoch').value.trim(); changed(); });
  $('design-spec').addEventListener('change', () => go($('design-spec').value.trim()));
  $('design-form').addEventListener('submit', (event) => {
    event.preventDefault();
    // Enter in a text field applies the text that has changed.
    document.activeElement.blur();
  });
}

const spec = () => [...design.fields.filter(({ bits }) => bits > 0).map(({ name, bits }) => (name === 'time' ? `time:${bits}@${design.tick}ms` : `${name}:${bits}`)), design.epoch && `epoch:${design.epoch}`].filter(Boolean).join(' ');

function go(text) {
  const target = `#/design/${encodeURIComponent(text)}`;
  if (location.hash === target) show([text]); else location.hash = target;
}

/** Shows a layout by its name or text form. */
export async function show([text = USUAL]) {
  const view = await load(text);
  if (!view) return;
  design = { fields: view.fields.map(({ name, bits }) => ({ name, bits })), tick: view.tick_ms, epoch: view.epoch_utc };
  controls();
}

/** After a slider moved: the drawing follows at once, the facts as soon as the server has answered. */
function changed() {
  draw();
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const text = spec();
    history.replaceState(null, '', `#/design/${encodeURIComponent(text)}`);
    await load(text);
  }, 60);
}

async function load(text) {
  running?.abort();
  running = new AbortController();
  try {
    const view = await request(`v1/layout?spec=${encodeURIComponent(text)}`, { signal: running.signal });
    $('design-spec').value = view.layout;
    $('design-spec').removeAttribute('aria-invalid');
    $('design-epoch').removeAttribute('aria-invalid');
    facts(view);
    markPreset(view.name);
    return view;
  } catch (error) {
    if (error.name === 'AbortError') return null;
    $('design-spec').value = text;
    $('design-spec').setAttribute('aria-invalid', 'true');
    fill($('design-facts'), explain(error));
    fill($('design-commands'));
    markPreset('');
    if (!$('design-sliders').hasChildNodes()) controls();
    // The picture would show another layout than the text.
    if (text !== spec()) fill($('design-bits'), el('p', { class: 'note' }, 'The text form is not a layout. The sliders still show the last one.'));
    return null;
  }
}

function markPreset(name) {
  if (name !== undefined) design.name = name ?? '';
  if ($('design-preset').options.length > 0) $('design-preset').value = design.name ?? '';
}

function controls() {
  const absent = FIELDS.filter((name) => !design.fields.some((field) => field.name === name)).map((name) => ({ name, bits: 0 }));
  design.fields.push(...absent);
  if (![...$('design-tick').options].some((option) => Number(option.value) === design.tick)) $('design-tick').append(el('option', { value: design.tick }, `${thousands(design.tick)} ms`));
  $('design-tick').value = design.tick;
  $('design-epoch').value = design.epoch;
  fill($('design-sliders'), design.fields.map(slider));
  draw();
}

function slider(field, index) {
  const { name } = field;
  const least = name === 'time' ? 1 : 0;
  const range = el('input', { type: 'range', min: least, max: MOST[name], value: field.bits, 'aria-label': `${name}, bits` });
  const number = el('input', { type: 'number', min: least, max: MOST[name], value: field.bits, 'aria-label': `${name}, number of bits` });
  const take = (from, to) => () => {
    const bits = Math.round(Number(from.value));
    if (from.value === '' || !(bits >= least && bits <= MOST[name])) return;
    field.bits = bits;
    to.value = bits;
    changed();
  };
  range.addEventListener('input', take(range, number));
  number.addEventListener('input', take(number, range));
  const up = () => {
    [design.fields[index - 1], design.fields[index]] = [design.fields[index], design.fields[index - 1]];
    controls();
    changed();
    $('design-sliders').querySelectorAll('button')[Math.max(index - 1, 0)].focus();
  };
  return el('div', { class: 'slider' },
    el('span', {}, swatch(name), name), range, number,
    el('button', { type: 'button', 'aria-label': `Move ${name} up`, title: `Move ${name} towards the top bit`, disabled: index === 0, click: up }, '↑'));
}

function draw() {
  const used = design.fields.filter(({ bits }) => bits > 0);
  const total = used.reduce((sum, { bits }) => sum + bits, 0);
  let shift = total;
  const fields = used.map(({ name, bits }) => ({ name, bits, shift: (shift -= bits) }));
  const label = `${total} of 63 bits: ${used.map(({ name, bits }) => `${name} ${bits}`).join(', ')}`;
  // Too many bits are drawn too, so that the user sees how many.
  fill($('design-bits'), drawing(Math.max(64, total), fields, null, label), el('p', { class: 'note' }, total > 63 ? `${total} bits are ${total - 63} too many: an id has 63.` : `${total} of 63 bits in use; the sign bit of a 64-bit number stays 0.`));
}

function facts(view) {
  // What a warning says is not said again.
  const fact = (name, value, note) => el('div', {}, el('dt', {}, name), el('dd', {}, value, note && el('small', {}, note)));
  const all = BigInt(view.ids_per_second_per_worker) * BigInt(view.workers);
  const [worker, datacenter] = ['worker', 'datacenter'].map((field) => (view.fields.find(({ name }) => name === field)?.max ?? 0) + 1);
  const rate = (number) => (BigInt(number) === 0n ? 'less than 1' : roughly(number));
  fill($('design-facts'),
    view.warnings.map((warning) => banner('warn', warning)),
    el('dl', { class: 'facts' },
      fact(view.ended ? 'Ended' : 'Lasts until', view.last_utc.slice(0, 10), view.ended ? age(view.last_unix_ms) : `${view.years_left} years from now, ${span(view.last_unix_ms - view.epoch_unix_ms)} in all`),
      fact('Workers', thousands(view.workers), datacenter > 1 ? `${thousands(worker)} in each of ${thousands(datacenter)} datacenters` : view.workers > 1 && 'that many nodes at a time'),
      fact('Ids a second, a worker', rate(view.ids_per_second_per_worker), view.ids_per_second_per_worker >= 1e6 ? thousands(view.ids_per_second_per_worker) : `${thousands(view.fields.find(({ name }) => name === 'sequence') ? Number(view.fields.find(({ name }) => name === 'sequence').max) + 1 : 1)} in each tick of ${view.tick_ms === 1 ? '1 ms' : span(view.tick_ms)}`),
      fact('Ids a second, all', rate(all), all >= 1_000_000n ? thousands(all) : null),
      fact('Sorts by time', view.sorts_by_time ? 'yes' : 'no', view.sorts_by_time && 'the timestamp is on top'),
      fact('In JavaScript', view.safe_in_javascript ? 'exact' : 'as text', view.safe_in_javascript ? `${view.bits} of the 53 bits of a number` : `${view.bits} bits, and a number has 53`)));
  const name = view.name ?? view.layout;
  fill($('design-commands'),
    code('See it on the command line', `snowmint layout '${name}'`),
    code('Serve ids of it', `snowmint serve --layout '${name}'`),
    code('In a namespace of its own', `snowmint ns add players --scheme snowflake --layout '${name}'`),
    code('In Rust', `let layout: snowmint::Layout = "${name}".parse()?;`));
}
