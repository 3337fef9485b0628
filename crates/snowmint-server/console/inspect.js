// Inspect: what a text may be. The server reads it (`/v1/readings`); here it is drawn.

import { $, age, banner, copyButton, drawing, el, explain, fill, local, request, say, svg, swatch, thousands } from './page.js';

const EXAMPLES = [
  ['Twitter', '1541815603606036480', 'twitter'],
  ['Discord', '175928847299117063'],
  ['Sonyflake', '500000000000000000'],
  ['base62', '1ptWyK4WgZU'],
  ['ULID', '01ARZ3NDEKTSV4RRFFQ69G5FAV'],
  ['UUID v7', '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'],
];

let running;
let shownText;
let shown = { text: '', readings: [] };

export function start(server) {
  fill($('inspect-examples'), 'For example:', EXAMPLES.map(([name, text]) => el('a', { href: link(text) }, name)));
  $('inspect-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const text = $('inspect-text').value.trim();
    const target = link(text, $('inspect-by').value);
    if (!text) $('inspect-text').focus();
    else if (location.hash === target) show([text], new URLSearchParams($('inspect-by').value));
    else location.hash = target;
  });
  $('inspect-by').addEventListener('change', () => { if ($('inspect-text').value.trim()) $('inspect-form').requestSubmit(); });
  server.then(({ namespaces, layouts }) => {
    const group = (label, key, names) => names.length > 0 && el('optgroup', { label }, names.map((name) => el('option', { value: new URLSearchParams({ [key]: name }).toString() }, name)));
    $('inspect-by').append(...[group('an id of a namespace', 'namespace', namespaces.map(({ name }) => name)), group('an id of a layout', 'layout', layouts.map(({ name }) => name))].filter(Boolean));
    select(new URLSearchParams(location.hash.split('?')[1]));
  });
}

/** The address of a text, to share. */
export const link = (text, by = '') => `#/inspect/${encodeURIComponent(text)}${by ? `?${by}` : ''}`;

function select(query) {
  const by = ['namespace', 'layout'].filter((key) => query.has(key)).map((key) => new URLSearchParams({ [key]: query.get(key) }).toString())[0] ?? '';
  const known = [...$('inspect-by').options].some((option) => option.value === by);
  if (by && !known) $('inspect-by').append(el('option', { value: by }, query.get('layout') ?? query.get('namespace')));
  $('inspect-by').value = by;
}

export async function show([text = ''], query) {
  select(query);
  if (!text) {
    shownText = '';
    return example();
  }
  const by = $('inspect-by').value;
  $('inspect-text').value = text;
  const as = query.get('as');
  if (shownText === `${text}?${by}`) return choose(as);
  running?.abort();
  running = new AbortController();
  $('inspect-result').setAttribute('aria-busy', 'true');
  try {
    shown = await request(`v1/readings/${encodeURIComponent(text)}${by ? `?${by}` : ''}`, { signal: running.signal });
    shownText = `${text}?${by}`;
    choose(as);
  } catch (error) {
    if (error.name === 'AbortError') return;
    shownText = '';
    fill($('inspect-result'), explain(error));
  }
  $('inspect-result').setAttribute('aria-busy', 'false');
}

/** Shows what an id looks like to somebody who has none at hand. Whoever may not read ids sees nothing. */
async function example() {
  running?.abort();
  running = new AbortController();
  fill($('inspect-result'));
  const [[name, text, layout]] = EXAMPLES;
  try {
    const { readings } = await request(`v1/readings/${text}?layout=${layout}`, { signal: running.signal });
    fill($('inspect-result'), el('p', { class: 'note example' }, `An example: ${text}, an id of ${name}. `, el('a', { href: link(text) }, 'All about it')), picture(readings[0]));
  } catch { /* The problem is reported once the user asks for something. */ }
}

const key = (reading) => `${reading.name} ${reading.form}`;

function choose(as) {
  const chosen = shown.readings.find((reading) => key(reading) === as) ?? shown.readings[0];
  const list = shown.readings.length > 1 && [el('h2', {}, 'What else it may be'), others(chosen), el('p', { class: 'note' }, 'Likelihoods are estimates from the fields and the age. If you know the layout or namespace, choose it above.')];
  fill($('inspect-result'), chosen === shown.readings[0] && doubts(), reading(chosen), list || null);
  say(`${chosen.name}${chosen.utc ? `, ${chosen.utc}` : ''}`);
}

/** What to know of the likeliest reading: others that are nearly as likely, and that the id may be rounded or hidden. */
function doubts() {
  const near = shown.near_ties?.length > 0 && `nearly as likely: ${shown.near_ties.join(', ')}`;
  return [near, ...(shown.notes ?? [])].filter(Boolean).map((note) => banner('warn', note));
}

/** The instant, the bits and the fields of a reading. */
function picture(it) {
  const digits = bits(it);
  const fields = it.fields ?? [];
  const label = fields.length > 0
    ? `${it.width} bits: ${fields.map(({ name, bits: width, value }) => `${name}, ${width} bits, ${value}`).join('; ')}`
    : `${it.width} bits, a plain number`;
  return el('div', {},
    el('p', { class: 'answer' }, el('strong', {}, it.name), likelihood(it), el('span', { class: 'badge' }, `read as ${it.form}`), (it.namespaces ?? []).map((name) => el('span', { class: 'badge' }, `namespace ${name}`))),
    it.utc && el('p', { class: 'when' }, el('b', {}, it.utc), ` · ${age(it.unix_ms)} · ${local(it.unix_ms)} here`),
    drawing(it.width, fields, digits, label),
    fields.length > 0 && el('div', { class: 'scroll' }, el('table', { 'aria-label': 'Fields' },
      el('thead', {}, el('tr', {}, el('th', {}, 'Field'), el('th', { class: 'n' }, 'Bits'), el('th', { class: 'n' }, 'Position'), el('th', { class: 'n' }, 'Value'))),
      el('tbody', {}, fields.map((field) => el('tr', {},
        el('th', { scope: 'row' }, swatch(field.name), field.name),
        el('td', { class: 'n' }, String(field.bits)),
        el('td', { class: 'n quiet' }, field.bits === 1 ? String(field.shift) : `${field.shift + field.bits - 1}–${field.shift}`),
        el('td', { class: 'n mono' }, thousands(field.value))))))));
}

function reading(it) {
  return el('div', {},
    picture(it),
    el('h2', {}, 'Text forms'),
    el('table', { class: 'texts', 'aria-label': 'Text forms' }, el('tbody', {}, it.texts.map(({ form, text }) => el('tr', {}, el('td', {}, form), el('td', { class: 'mono' }, text), el('td', {}, copyButton(text, form)))))),
    it.layout && el('p', { class: 'note outcome' }, 'Layout: ', el('a', { href: `#/design/${encodeURIComponent(it.layout)}` }, it.layout)),
    el('p', { class: 'note outcome' }, 'This page has the id in its address. ', copyButton(() => location.href, 'link')));
}

function likelihood(it) {
  if (it.likelihood === undefined) return null;
  return el('span', { class: 'badge good' }, `${percent(it.likelihood)} likely`);
}

const percent = (share) => (share >= 0.995 ? '> 99%' : share < 0.005 ? '< 1%' : `${Math.round(share * 100)}%`);

function bits(it) {
  const number = it.hex ? BigInt(`0x${it.hex}`) : BigInt(it.id);
  return number.toString(2).padStart(it.width, '0');
}

function others(chosen) {
  return el('ul', { class: 'readings' }, shown.readings.map((it) => {
    const share = it.likelihood ?? 0;
    const meter = svg('svg', { viewBox: '0 0 60 6', 'aria-hidden': 'true' }, svg('rect', { width: Math.max(share * 60, 1), height: 6 }));
    const query = new URLSearchParams($('inspect-by').value);
    const go = () => {
      query.set('as', key(it));
      history.replaceState(null, '', link(shown.text, query.toString()));
      choose(key(it));
      [...document.querySelectorAll('.readings button')].find((button) => button.getAttribute('aria-pressed') === 'true')?.focus();
    };
    return el('li', {}, el('button', { type: 'button', 'aria-pressed': String(it === chosen), click: go },
      el('span', {}, it.name), el('span', { class: 'of' }, it.namespaces ? `namespace ${it.namespaces.join(', ')}` : it.form),
      el('span', { class: 'of' }, it.utc ? `${it.utc.slice(0, 19).replace('T', ' ')}Z` : 'no instant'),
      el('span', { class: 'meter' }, percent(share), meter)));
  }));
}
