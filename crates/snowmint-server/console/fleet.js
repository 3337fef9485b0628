// Fleet: nodes, workers, namespaces, clocks and changes of the store, live, and the last hour of this node.

import { follow, pause } from './events.js';
import { $, banner, code, el, explain, fill, local, request, say, span, thousands, update, utcTime } from './page.js';

/** How often the history is asked for: a sample comes as often. */
const HISTORY_EVERY = 30_000;

let watching;
let state;
let receivedAt = 0;
let ticking;
let remembering;
/** What this node remembers, and why it does not say so. */
let history;
let historyProblem;
/** Whether the stream delivers states, and why the node ended it. */
let open = false;
let endedBecause;
/** Whether the view shows a state, and what `isCurrent` was when it was drawn. */
let isDrawn = false;
let drawnCurrent;

/** Whether the user has paused the view, to read or copy it. */
let paused = false;

/** The names of layouts by their text form. */
let layouts = [];
const named = (text) => layouts.reduce((text, { name, layout }) => (name ? text.replace(layout, name) : text), text);

export function start(server) {
  server.then((known) => {
    ({ layouts } = known);
    if (state) draw();
  });
  $('fleet-pause').addEventListener('click', () => {
    paused = !paused;
    $('fleet-pause').setAttribute('aria-pressed', String(paused));
    if (paused) { hide(); live('', `paused; the view below is of ${utcTime(state.at_unix_ms)}`); } else show();
  });
}

export function show() {
  if (watching || document.hidden || paused) return;
  watching = new AbortController();
  ticking = setInterval(tick, 1000);
  remembering = setInterval(remember, HISTORY_EVERY);
  live('', state ? `connecting; the view below is of ${utcTime(state.at_unix_ms)}` : 'connecting');
  follow(watching.signal, events);
  if (state) remember();
}

export function hide() {
  watching?.abort();
  clearInterval(ticking);
  clearInterval(remembering);
  watching = undefined;
  open = false;
  // The last state stays, as an old one.
  if (state) draw(); else note(null);
}

// A hidden tab would use up a viewer of the node.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) hide();
  else if (!$('fleet').hidden) show();
});

/** The problems that screen readers have announced. */
let announced = [];

/** Shows a problem of the stream, or those that the server reports. Each is announced once, though its remedy may change. */
function note(problems) {
  update($('fleet-problems'), problems);
  const shown = [...$('fleet-problems').querySelectorAll('b')].map((what) => what.textContent);
  const news = shown.filter((what) => !announced.includes(what));
  announced = shown;
  if (news.length > 0 && !$('fleet').hidden) say(news.join('; '));
}

const live = (kind, text) => {
  $('fleet-live').className = `live ${kind}`;
  setText($('fleet-live'), text);
};

const events = {
  state(received) {
    state = received;
    receivedAt = performance.now();
    open = true;
    draw();
  },
  end(why) {
    endedBecause = why;
  },
  lost(error) {
    open = false;
    tick();
    live('off', error ? 'not connected; trying again' : 'the stream ended; reconnecting');
    const of = state && `The view below is of ${utcTime(state.at_unix_ms)}.`;
    if (error) note(banner('error', error.silent ? 'This node has stopped sending its state: reconnecting.' : error.status ? error.message : 'This node does not answer.', of));
    else if (endedBecause) note(banner('warn', `The stream ended: ${endedBecause}`, of));
    endedBecause = undefined;
  },
  refused: withoutRight,
};

/** Whether the view shows the present: states arrive, and the store answers. */
const isCurrent = () => open && state.store.answers;

/** The instant of the leases on the page: now, or the last read of the store. What happened since then is unknown. */
const shownInstant = () => (isCurrent() ? state.at_unix_ms + (performance.now() - receivedAt) : state.store.read_unix_ms ?? state.at_unix_ms);

function tick() {
  if (!state) return;
  if (drawnCurrent !== isCurrent()) return draw();
  // Without a stream, `events` says why.
  if (open) live('on', state.store.answers ? 'live' : 'live, without the store');
  lanes();
}

/** Asks for the last hour of this node. */
async function remember() {
  const { signal } = watching;
  try {
    history = await request('v1/admin/history', { signal });
    historyProblem = undefined;
  } catch (error) {
    if (signal.aborted) return;
    historyProblem = error.message;
  }
  drawHistory();
}

/** Draws the plots into their place, which the states leave alone. */
async function drawHistory() {
  // The other views do without.
  const { plots } = await import('./plots.js');
  if (!$('fleet-plots')) return;
  fill($('fleet-plots'), historyProblem ? el('p', { class: 'quiet' }, `Not known: ${historyProblem}`) : history && plots(history));
}

/** What a client without the right may see: whether this node is ready. It is asked while the view is shown. */
async function withoutRight(error) {
  const { signal } = watching;
  isDrawn = false;
  $('fleet-pause').hidden = true;
  live('', 'not watching');
  state = undefined;
  $('fleet-age').hidden = true;
  note(error.status === 401 ? explain(error) : null);
  const card = el('div', { class: 'cards' });
  fill($('fleet-body'),
    el('p', { class: 'lead' }, 'The fleet needs a token with the right admin, for all namespaces. Enter it under “Token”.'),
    card,
    el('h2', {}, 'Make such a token'),
    el('p', { class: 'note' }, error.status === 403 ? error.message : ''),
    code('Create it; the file may be in use already', "snowmint token create ops --namespaces '*' --rights mint,inspect,admin --file tokens.toml"),
    code('Serve with it', 'snowmint serve --tokens-file tokens.toml'));
  $('fleet-body').classList.remove('old');
  while (!signal.aborted) {
    const ready = await request('readyz', { signal }).then((answer) => ({ ok: true, ...answer }), (problem) => ({ ok: false, why: problem.message }));
    if (signal.aborted) return;
    fill(card, readyCard(ready));
    await pause(5000, signal);
  }
}

function readyCard(ready) {
  return el('section', { class: 'panel card' }, el('h2', {}, 'This node'), rows([
    ['state', badge(ready.ok, 'ready', 'not ready')],
    ready.why && ['why', ready.why],
    ...(ready.leases ?? []).map(({ worker, until }) => [`worker ${worker}`, `lease until ${until}`]),
    ready.trouble && ['trouble', ready.trouble],
  ]));
}

const badge = (good, yes, no) => el('span', { class: `badge ${good ? 'good' : 'bad'}` }, good ? yes : no);

function draw() {
  const { node, store } = state;
  drawnCurrent = isCurrent();
  if (node.holder && !$('fleet').hidden) document.title = `${node.holder} · Fleet · Snowmint`;
  $('fleet-body').classList.toggle('old', !drawnCurrent);
  $('fleet-age').hidden = drawnCurrent || store.read_unix_ms === undefined;
  if (!drawnCurrent) $('fleet-age').textContent = `What comes from the store is shown as it was at ${utcTime(shownInstant())}, when the store last answered.`;
  note([
    state.problems.map(({ severity, what, remedy }) => banner(severity === 'error' ? 'error' : 'warn', what, remedy)),
    state.more_problems > 0 && el('p', { class: 'note' }, `and ${thousands(state.more_problems)} more problems; \`snowmint doctor\` lists all`),
  ]);
  const first = !isDrawn;
  (first ? fill : update)($('fleet-body'),
    el('h2', {}, 'Nodes'), nodes(state.nodes, store.id),
    el('h2', {}, 'The last hour of this node'), el('div', { id: 'fleet-plots', class: 'plots', 'data-live': true }),
    el('div', { class: 'cards' }, nodeCard(node), storeCard(store, node)),
    el('h2', {}, 'Workers'), workers(),
    el('h2', {}, 'Namespaces'), namespaces(),
    el('h2', {}, 'Newest changes'), changes(),
    state.warnings.map((warning) => el('p', { class: 'note' }, warning)));
  isDrawn = true;
  if (first) {
    drawHistory();
    if (watching) remember();
  }
  $('fleet-pause').hidden = false;
  tick();
}

function rows(pairs) {
  return el('dl', {}, pairs.filter(Boolean).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

const offset = (ms) => `${thousands(Math.abs(ms))} ms ${ms > 0 ? 'ahead of' : 'behind'}`;
const clockTime = (unixMs) => el('span', { title: `${local(unixMs)} here` }, utcTime(unixMs));
const speed = (rate) => (rate === undefined ? 'measuring' : thousands(rate));

function nodeCard(node) {
  return el('section', { class: 'panel card' }, el('h2', {}, 'This node'), rows([
    node.holder && ['name', node.holder],
    ['state', node.drained ? el('span', { class: 'badge warn' }, 'drained') : badge(node.ready, 'ready', 'not ready')],
    ['ids a second', speed(node.ids_per_second)],
    ['ids since the start', thousands(node.issued)],
    ['running for', span(state.at_unix_ms - node.started_unix_ms)],
    ['workers', node.leases.length > 0 ? node.leases.map(({ worker }) => worker).join(', ') : 'none'],
    ['wall clock', node.wall_ahead_ms === 0 ? 'the same as the clock of the ids' : `${offset(node.wall_ahead_ms)} the clock of the ids`],
    ['version', node.version],
  ]));
}

function storeCard(store, node) {
  return el('section', { class: 'panel card' }, el('h2', {}, 'Store'), rows([
    ['state', badge(store.answers, 'answers', 'does not answer')],
    ['address', store.name],
    store.id && ['identity', store.id],
    store.another && ['answers instead', el('span', { class: 'badge bad' }, store.another)],
    store.took_ms !== undefined && ['last call took', `${store.took_ms} ms`],
    ['its clock', store.clock_ahead_ms === undefined ? 'none to compare with' : store.clock_ahead_ms === 0 ? `the same as here, within ${Math.max(store.clock_within_ms, 1)} ms` : `at least ${offset(-store.clock_ahead_ms)} this clock`],
    node.records_ahead_ms > 0 && ['records', `${span(node.records_ahead_ms)} ahead of this node's clock`],
    ['failed calls', thousands(node.store_errors)],
    store.read_unix_ms !== undefined && ['last answer', clockTime(store.read_unix_ms)],
  ]));
}

const NODE = { gone: ['bad', 'gone'], late: ['warn', 'late'], 'not-ready': ['warn', 'not ready'], alive: ['good', 'alive'] };

/** The nodes, those that are gone first: `own` is the identity of the store of this node. */
function nodes(all, own) {
  return [el('table', { class: 'stack lines nodes', 'aria-label': 'Nodes' },
    el('thead', {}, el('tr', {}, ['Node', 'State', 'Workers', ['n', 'Ids a second'], 'Version', 'Store', 'Remark'].map((name) => (Array.isArray(name) ? el('th', { class: name[0] }, name[1]) : el('th', {}, name))))),
    el('tbody', {}, all.map((it) => {
      const [kind, text] = NODE[it.state] ?? ['', it.state];
      const seen = it.seen_unix_ms !== undefined && `last seen ${span(state.at_unix_ms - it.seen_unix_ms)} ago, at ${utcTime(it.seen_unix_ms)}`;
      const where = it.address && it.address !== it.name && it.address;
      const namesake = it.namesake && 'another node has this name: give each its own with --holder';
      const another = it.store && own && it.store !== own;
      return el('tr', { class: `is-${it.state}` },
        el('th', { scope: 'row' }, it.name, it.here && el('span', { class: 'quiet' }, ' (this node)')),
        el('td', { 'data-name': 'State' }, el('span', { class: `badge ${kind}` }, text)),
        el('td', { 'data-name': 'Workers' }, it.workers.length > 0 ? ranges(it.workers) : '–'),
        el('td', { 'data-name': 'Ids a second', class: 'n' }, it.ids_per_second === undefined ? '–' : thousands(it.ids_per_second)),
        el('td', { 'data-name': 'Version' }, it.version ?? '–'),
        el('td', { 'data-name': 'Store' }, it.store === undefined ? '–' : another ? el('span', { class: 'badge bad' }, it.store) : 'this one'),
        el('td', { 'data-name': 'Remark', class: 'quiet' }, el('span', {}, [seen, it.why, (it.namesake || (!it.why && !seen)) && where, namesake].filter(Boolean).join('; '))));
    }))),
  state.more_nodes > 0 && el('p', { class: 'note' }, `and ${thousands(state.more_nodes)} more`)];
}

/** Writes numbers as 1–3, 7. */
function ranges(numbers) {
  const all = [];
  for (const number of numbers) {
    const last = all.at(-1);
    if (last && last[1] === number - 1) last[1] = number; else all.push([number, number]);
  }
  return all.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(', ');
}

/** The name of the layout of a pool, or its bits as a layout is written. */
function layoutOf({ pool, name, datacenter }) {
  const fields = pool.split('.').map((field) => /^([a-z]+)(\d.*)$/.exec(field)?.slice(1) ?? [field]);
  const text = fields.map(([field, bits]) => (bits !== undefined && field !== 'in' ? `${field}:${bits}` : /^\d+$/.test(field) ? `epoch:${new Date(Number(field)).toISOString().replace('T00:00:00.000Z', '')}` : '')).filter(Boolean).join(' ');
  return [name ?? text, datacenter !== undefined && `datacenter ${datacenter}`].filter(Boolean).join(', ');
}

function workers() {
  if (state.workers === null) return el('p', { class: 'quiet' }, 'The store has not answered yet.');
  if (state.workers.length === 0) return el('p', { class: 'quiet' }, 'No node has held a worker yet.');
  const mine = new Set(state.node.leases.map(({ pool, worker }) => `${pool}/${worker}`));
  // Many running transitions would keep the processor busy.
  $('fleet-body').classList.toggle('many', state.workers.length > 100);
  return state.pools.map(({ pool, name, datacenter, workers, held, unreadable, more_workers, more_held }) => [
    el('h3', { class: 'pool', title: pool }, el('b', {}, layoutOf({ pool, name, datacenter })), ` · ${thousands(workers - held - unreadable)} of ${thousands(workers)} workers ${drawnCurrent ? 'are' : 'were'} free${unreadable > 0 ? `, ${thousands(unreadable)} unreadable` : ''}`),
    leases(state.workers.filter((it) => it.pool === pool), mine, layoutOf({ pool, name, datacenter })),
    more_workers > 0 && el('p', { class: 'note' }, `and ${thousands(more_workers)} more (${thousands(more_held)} held); \`snowmint workers\` lists all`),
  ]);
}

function leases(order, mine, layout) {
  return el('table', { class: 'lanes stack lines', 'aria-label': `Workers of ${layout}` },
    el('thead', {}, el('tr', {}, el('th', {}, 'Worker'), el('th', {}, 'Holder'), el('th', {}, 'Lease ends'), el('th', {}, el('div', { class: 'axis' }, el('span', { class: 'axis-from', 'data-live': true }), el('span', {}, drawnCurrent ? 'now' : utcTime(shownInstant())), el('span', { class: 'axis-to', 'data-live': true }))))),
    el('tbody', {}, order.map((it) => el('tr', {},
      el('th', { scope: 'row' }, `worker ${it.worker}`),
      el('td', { 'data-name': 'Holder' }, it.holder ?? el('span', { class: 'badge bad' }, 'unreadable record'), mine.has(`${it.pool}/${it.worker}`) ? ' (this node)' : ''),
      el('td', { 'data-name': 'Lease ends', class: 'until', 'data-live': true, 'data-state': it.lapsed ? 'lapsed' : it.state, 'data-until': it.until_unix_ms }, ''),
      el('td', { class: 'lane-cell' }, el('div', { class: 'lane', 'data-live': true, 'data-state': it.state, 'data-from': it.from_unix_ms, 'data-until': it.until_unix_ms }))))));
}

const setText = (target, text) => { if (target.textContent !== text) target.textContent = text; };

/** Draws the leases around the shown instant, and how long they last. */
function lanes() {
  const present = shownInstant();
  const cells = [...document.querySelectorAll('.lane')];
  const lasting = cells.map((lane) => Number(lane.dataset.until ?? 0) - present).filter((left) => left > 0).sort((one, other) => one - other);
  // One lease that ends in a year would make all others invisible: the scale fits the usual ones.
  const usual = lasting[Math.floor((lasting.length - 1) / 2)] ?? 0;
  const ahead = Math.max(Math.min(lasting.at(-1) ?? 0, 2 * usual), 5000);
  const reach = [10_000, 20_000, 60_000, 300_000, 3_600_000, 86_400_000].find((ms) => ms >= ahead) ?? ahead;
  const place = (instant) => ((instant - present + reach) / (2 * reach)) * 100;
  for (const [end, sign] of [['from', '−'], ['to', '+']]) {
    for (const label of document.querySelectorAll(`.axis-${end}`)) setText(label, `${sign}${span(reach)}`);
  }
  for (const lane of cells) {
    const until = Number(lane.dataset.until);
    if (!until) { fill(lane); continue; }
    const from = Number(lane.dataset.from) || 0;
    const [left, right] = [Math.max(place(from), 0), Math.min(place(until), 100)];
    if (!lane.hasChildNodes()) lane.append(el('div', {}), el('div', { class: 'now' }));
    const [lease, mark] = lane.children;
    lease.className = `lease${lane.dataset.state === 'free' ? ' free' : ''}${left === 0 ? ' open' : ''}${place(until) > 100 ? ' beyond' : ''}`;
    lease.hidden = right <= 0;
    lease.style.left = `${left}%`;
    lease.style.width = `${Math.max(right - left, 0)}%`;
    mark.style.left = '50%';
  }
  for (const cell of document.querySelectorAll('.until')) {
    const until = Number(cell.dataset.until);
    const text = until ? ending(cell.dataset.state, until, until - present) : '';
    setText(cell, text);
  }
}

/** Says when a lease ends. A worker that was held at the last read may have been renewed since: it is never called free. */
function ending(state, until, left) {
  if (state === 'lapsed') return isCurrent() ? `ended ${span(left)} ago, not released` : `ended at ${utcTime(until)}, not released`;
  if (state === 'free') return isCurrent() ? `free for ${span(left)}` : `ended at ${utcTime(until)}`;
  return isCurrent() && left > 0 ? `in ${span(left)}` : `held until ${utcTime(until)} when last read`;
}

function namespaces() {
  if (state.namespaces.length === 0) return el('p', { class: 'quiet' }, 'No namespaces.');
  return [el('table', { class: 'stack lines namespaces', 'aria-label': 'Namespaces' },
    el('thead', {}, el('tr', {}, el('th', {}, 'Name'), el('th', {}, 'Ids'), el('th', {}, 'Owner'), el('th', {}, 'State'), el('th', { class: 'n' }, 'Ids a second here'), el('th', { class: 'n' }, 'Reserve here'), el('th', { class: 'n' }, 'Reserved to'), el('th', { class: 'n' }, 'Time left'))),
    el('tbody', {}, state.namespaces.map((it) => {
      const here = it.here ?? {};
      const reserve = here.left === undefined ? '–' : `${thousands(here.left)}${here.lasts_s === undefined ? '' : `, ${span(here.lasts_s * 1000)}`}`;
      const left = it.days_left !== undefined ? daysLeft(it) : here.used === undefined ? '–' : `${here.used < 0.001 ? '< 0.1' : (here.used * 100).toFixed(1)}% used`;
      return el('tr', {},
        el('th', { scope: 'row' }, it.name),
        el('td', { 'data-name': 'Ids' }, el('span', {}, named(it.summary.startsWith(it.scheme) ? it.summary : `${it.scheme} ${it.summary}`))),
        el('td', { 'data-name': 'Owner' }, el('span', {}, it.owner, it.description && el('small', {}, ` ${it.description}`))),
        el('td', { 'data-name': 'State' }, stateOf(it)),
        el('td', { 'data-name': 'Ids a second here', class: 'n' }, it.here ? speed(here.ids_per_second) : '–'),
        el('td', { 'data-name': 'Reserve here', class: 'n' }, reserve),
        el('td', { 'data-name': 'Reserved to', class: 'n' }, it.reserved_to === undefined ? '–' : thousands(it.reserved_to)),
        el('td', { 'data-name': 'Time left', class: 'n' }, left));
    }))),
  state.more_namespaces > 0 && el('p', { class: 'note' }, `and ${thousands(state.more_namespaces)} more`)];
}

const hasEnded = (it) => it.ends_unix_ms <= state.at_unix_ms;
const daysLeft = (it) => (hasEnded(it) ? 'ended' : it.days_left === 0 ? 'less than 1 day' : span(it.days_left * 86_400_000));

function stateOf(it) {
  if (it.state === 'unreadable') return el('span', { class: 'badge bad' }, 'unreadable');
  if (it.state === 'dropped') return el('span', { class: 'badge' }, 'dropped');
  if (hasEnded(it)) return el('span', { class: 'badge bad' }, 'ended');
  // Numbers in memory are still given out.
  if (it.here?.exhausted) return it.here.left > 0 ? el('span', { class: 'badge warn' }, 'last numbers') : el('span', { class: 'badge bad' }, 'exhausted');
  if (it.here && !it.here.available) return el('span', { class: 'badge bad' }, 'unavailable here');
  return it.here ? el('span', { class: 'badge good' }, 'served') : el('span', { class: 'badge' }, 'not served here');
}

function changes() {
  if (state.changes.length === 0) return el('p', { class: 'quiet' }, 'Nobody has changed anything yet.');
  return el('table', { class: 'stack lines changes', 'aria-label': 'Newest changes' },
    el('thead', {}, el('tr', {}, el('th', {}, 'When'), el('th', {}, 'Who'), el('th', {}, 'Change'), el('th', {}, 'Details'))),
    el('tbody', {}, state.changes.map((it) => (it.unreadable
      ? el('tr', {}, el('td', {}, it.record), el('td', {}), el('td', {}, el('span', { class: 'badge bad' }, 'unreadable')), el('td', { class: 'quiet' }, it.unreadable))
      : el('tr', {},
        el('td', { 'data-name': 'When' }, el('span', { title: `${local(it.at_unix_ms)} here` }, `${it.at.slice(0, 19).replace('T', ' ')}Z`)),
        el('td', { 'data-name': 'Who' }, [it.who, it.from].filter(Boolean).join(', ')),
        el('td', { 'data-name': 'Change' }, el('span', {}, `${it.action} ${it.subject}`, it.failed && [' ', el('span', { class: 'badge bad' }, it.outcome === 'refused' ? 'refused' : 'failed')],
          it.possibly_made && [' ', el('span', { class: 'badge bad' }, 'possibly made')])),
        el('td', { 'data-name': 'Details', class: 'quiet' }, it.failed ?? it.possibly_made ?? it.details))))));
}
