// What all views share: elements without markup, requests, numbers and times for people, and the drawing of bits.
// Texts of others (names, holders, owners) only ever become text nodes and attributes.

const SVG = 'http://www.w3.org/2000/svg';

export const $ = (id) => document.getElementById(id);

/** Makes an element. `properties` are attributes; a function is a listener. `null` and `false` children are left out. */
export function el(name, properties = {}, ...children) {
  return build(document.createElement(name), properties, children);
}

/** The same for a part of a drawing. */
export const svg = (name, properties, ...children) => build(document.createElementNS(SVG, name), properties, children);

function build(made, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made.addEventListener(key, value);
    else made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...present(children));
  return made;
}

/** Children may be lists of lists. */
const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

export const fill = (target, ...children) => target.replaceChildren(...present(children));

/**
 * Makes the children of `target` equal to these, and keeps the elements that are there: a selected text, the focus and a running
 * transition stay. An element with `data-live` keeps its children, since somebody else draws them. No child has listeners.
 */
export function update(target, ...children) {
  const old = [...target.childNodes];
  const wanted = present(children).map((child) => (child instanceof Node ? child : document.createTextNode(child)));
  wanted.forEach((child, index) => {
    const kept = old[index];
    if (!kept) target.append(child);
    else if (kept.nodeName !== child.nodeName) kept.replaceWith(child);
    else if (kept instanceof Text) { if (kept.data !== child.data) kept.data = child.data; } else {
      for (const { name } of [...kept.attributes]) if (!child.hasAttribute(name)) kept.removeAttribute(name);
      for (const { name, value } of child.attributes) if (kept.getAttribute(name) !== value) kept.setAttribute(name, value);
      if (kept.dataset.live === undefined) update(kept, ...child.childNodes);
    }
  });
  for (const rest of old.slice(wanted.length)) rest.remove();
}

/** Tells users of screen readers what just happened. */
export function say(text) {
  $('said').textContent = '';
  requestAnimationFrame(() => { $('said').textContent = text; });
}

// Requests

const TOKEN = 'snowmint-token';
let memory = '';

export const token = {
  get() {
    try { return sessionStorage.getItem(TOKEN) ?? memory; } catch { return memory; }
  },
  set(text) {
    memory = text;
    try {
      if (text) sessionStorage.setItem(TOKEN, text); else sessionStorage.removeItem(TOKEN);
    } catch { /* Kept in memory only. */ }
  },
};

/** A failed request, as the server explains it. */
export class Problem extends Error {
  constructor(status, kind, detail) {
    super(detail);
    Object.assign(this, { status, kind });
  }
}

export function headers() {
  const text = token.get();
  return text ? { authorization: `Bearer ${text}` } : {};
}

export async function problemOf(response) {
  const type = response.headers.get('content-type') ?? '';
  const document = type.includes('json') ? await response.json().catch(() => null) : null;
  return new Problem(response.status, (document?.type ?? '').replace('urn:snowmint:', ''), document?.detail ?? `the server answered ${response.status}`);
}

/** Requests a path, relative to the server, and returns its JSON. Throws a `Problem`. */
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(), cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'unreachable', 'the server does not answer: check that it runs and that this machine can reach it');
  }
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

/** Asks for a token where one is missing. */
export function explain(error) {
  if (error.status === 401) document.dispatchEvent(new CustomEvent('needs-token', { detail: error.message }));
  return banner('error', error.message);
}

export const banner = (kind, what, remedy) => el('div', { class: `banner ${kind}` }, el('b', {}, what), remedy && el('span', {}, remedy));

// Numbers and times

const grouped = new Intl.NumberFormat('en-US');

/** Formats a number, BigInt or text of digits as 4,194,304. Above 2^53 JSON numbers are not exact, and are rounded. */
export function thousands(number) {
  if (typeof number === 'number' && Math.abs(number) > Number.MAX_SAFE_INTEGER) return `about ${roughly(number)}`;
  if (typeof number === 'string') return /^\d{1,40}$/.test(number) ? grouped.format(BigInt(number)) : number;
  return grouped.format(number);
}

/** Formats a large number as 4.2 million. */
export function roughly(number) {
  const value = Number(number);
  for (const [size, name] of [[1e15, 'quadrillion'], [1e12, 'trillion'], [1e9, 'billion'], [1e6, 'million']]) {
    if (value >= size) return `${grouped.format(Number((value / size).toPrecision(3)))} ${name}`;
  }
  return grouped.format(value);
}

const UNITS = [[31_556_952_000, 'year'], [2_629_746_000, 'month'], [86_400_000, 'day'], [3_600_000, 'hour'], [60_000, 'minute'], [1000, 'second']];

/** Formats a length of time in its largest unit, such as 3 days. */
export function span(ms) {
  const [size, name] = UNITS.find(([size]) => Math.abs(ms) >= size) ?? [1, 'ms'];
  const count = Math.floor(Math.abs(ms) / size);
  return name === 'ms' ? `${count} ms` : `${grouped.format(count)} ${name}${count === 1 ? '' : 's'}`;
}

export function age(unixMs) {
  const ms = unixMs - Date.now();
  if (Math.abs(ms) < 1000) return 'just now';
  return ms < 0 ? `${span(ms)} ago` : `in ${span(ms)}`;
}

/** Formats an instant in the time zone of the browser. */
export function local(unixMs) {
  const date = new Date(unixMs);
  if (Number.isNaN(date.getTime())) return 'beyond the dates that a browser knows';
  return date.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' });
}

/** Formats the time of day of an instant in UTC, such as 16:00:10Z. */
export function utcTime(unixMs) {
  const date = new Date(unixMs);
  return Number.isNaN(date.getTime()) ? 'a time beyond the dates that a browser knows' : `${date.toISOString().slice(11, 19)}Z`;
}

// Copying

export function copyButton(text, what) {
  const button = el('button', { type: 'button', class: 'small', 'aria-label': `Copy ${what}` }, 'Copy');
  button.addEventListener('click', async () => {
    const copied = await copy(typeof text === 'function' ? text() : text);
    button.textContent = copied ? 'Copied' : 'Not copied';
    say(copied ? `Copied ${what}` : `The browser did not allow copying ${what}`);
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP, other machines than this one have no clipboard.
    const area = el('textarea', { class: 'hide', 'aria-hidden': 'true' });
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    focused?.focus();
    return copied;
  }
}

/** A block of code with a button that copies it. */
export const code = (title, text) => el('div', { class: 'code' }, el('h3', {}, title), el('div', { class: 'code' }, el('pre', { tabindex: '0', 'aria-label': title }, text), copyButton(text, title)));

// Bits

const COLOURS = { timestamp: 'time', counter: 'sequence', version: 'generation', variant: 'generation' };
const KNOWN = ['time', 'datacenter', 'worker', 'generation', 'sequence'];

export const colour = (name) => (KNOWN.includes(name) ? name : COLOURS[name] ?? 'other');
export const swatch = (name) => el('span', { class: `swatch ${colour(name)}`, 'aria-hidden': 'true' });

/**
 * Draws an id of `width` bits. `fields` have a name, bits and shift, from the top bit down; `digits` are the bits as text, or
 * `null` to show the fields alone. It is drawn again when its width changes.
 */
export function drawing(width, fields, digits, label) {
  const spans = [];
  let top = width;
  for (const { name, bits, shift } of fields) {
    if (top > shift + bits) spans.push({ name: '', at: width - top, bits: top - shift - bits });
    spans.push({ name, at: width - shift - bits, bits });
    top = shift;
  }
  if (top > 0) spans.push({ name: '', at: width - top, bits: top });
  const box = el('div', { class: 'bits', role: 'img', 'aria-label': label });
  let shown = 0;
  const observer = new ResizeObserver(() => {
    // As many cells as can be read: 64, 32 or 16 a line.
    const cells = box.clientWidth >= 700 ? 64 : box.clientWidth >= 440 ? 32 : 16;
    if (cells === shown || box.clientWidth === 0) return;
    shown = cells;
    fill(box, Array.from({ length: Math.ceil(width / cells) }, (_, line) => lineOf(spans, line * cells, Math.min(cells, width - line * cells), cells, digits, box.clientWidth / cells)));
  });
  observer.observe(box);
  return box;
}

function lineOf(spans, from, length, cells, digits, pixels) {
  const line = el('div', { class: 'line', 'aria-hidden': 'true' });
  line.style.gridTemplateColumns = `repeat(${cells}, minmax(0, 1fr))`;
  const names = [];
  for (const { name, at, bits } of spans) {
    const begin = Math.max(at, from);
    const end = Math.min(at + bits, from + length);
    if (begin >= end) continue;
    const classes = ['cells', name && colour(name), digits === null && 'plain', begin === at && 'begin', end === at + bits && 'end'];
    const place = `${begin - from + 1} / span ${end - begin}`;
    const box = el('div', { class: classes.filter(Boolean).join(' ') });
    for (let bit = begin; bit < end; bit += 1) box.append(el('i', {}, digits === null ? '' : digits[bit]));
    box.style.gridColumn = place;
    box.style.gridRow = 1;
    const text = begin === at ? name : name && `… ${name}`;
    // A letter is about 7 px wide.
    const fits = (end - begin) * pixels >= text.length * 7;
    const below = el('div', { class: 'name', title: name }, fits ? text : text.slice(0, 1));
    below.style.gridColumn = place;
    below.style.gridRow = 2;
    line.append(box);
    if (name) names.push(below);
  }
  line.append(...names);
  return line;
}
