// Shows the console states of a fleet that no test can bring about: a stream that falls silent, a store with 1,024 workers, a
// namespace without numbers. The states are made here, and the clock of the page is moved by hand, so that nothing depends on
// the speed of the machine.

const { address } = asked;

/** The time of the node; the clock of the browser is an hour ahead. */
const NOON = Date.UTC(2026, 10, 27, 12);
const POOL = 'time41@1ms.worker10.sequence12.1767225600000';

const failed = [];

const text = (page, selector) => page.locator(selector).innerText();

/** A state of a healthy fleet, with changes. */
function fleet(changes = {}) {
  const { node, store, ...others } = changes;
  return {
    at_unix_ms: NOON,
    next_in_ms: 2000,
    problems: [],
    more_problems: 0,
    node: { holder: 'web-1:8080', version: '1.0.0', started_unix_ms: NOON - 60_000, ready: true, drained: false, leases: [{ pool: POOL, worker: 1, until_unix_ms: NOON + 8000 }], issued: 5, wall_ahead_ms: 0, records_ahead_ms: 0, store_errors: 0, ...node },
    store: { name: 'redis://store', answers: true, read_unix_ms: NOON, took_ms: 1, ...store },
    workers: [worker(1, NOON + 8000), worker(2, NOON + 10_000), { ...worker(3, NOON - 5000), state: 'free' }],
    pools: [pool()],
    nodes: [{ name: 'web-1:8080', state: 'alive', here: true, version: '1.0.0', workers: [1] }],
    more_nodes: 0,
    namespaces: [],
    more_namespaces: 0,
    changes: [],
    warnings: [],
    ...others,
  };
}

const pool = (changes = {}) => ({ pool: POOL, workers: 1024, held: 2, unreadable: 0, more_workers: 0, more_held: 0, ...changes });
const worker = (number, until_unix_ms) => ({ pool: POOL, worker: number, state: 'held', holder: `node-${number}`, from_unix_ms: NOON - 60_000, until_unix_ms });

/** Opens a page whose requests for data are answered here. `answers` has a function for each path. */
async function open(context, view, answers = {}) {
  const page = await context.newPage();
  page.on('pageerror', (error) => failed.push(`script: ${error.stack}`));
  await page.clock.install({ time: NOON });
  await page.clock.pauseAt(NOON + 3_600_000);
  await page.addInitScript(() => {
    const real = window.fetch;
    window.streams = [];
    window.requests = [];
    window.answers = { 'v1/server': { body: { version: '1.0.0', tokens: false, admin: true, namespaces: [], more_namespaces: 0 } }, 'v1/layouts': { body: { layouts: [] } }, 'v1/admin/history': { body: { at_unix_ms: Date.now(), every_ms: 30_000, samples: [] } } };
    window.fetch = async (path, { signal } = {}) => {
      if (!path.startsWith('v1/') && path !== 'readyz') return real(path);
      window.requests.push(path);
      const answer = window.answers[path.split('?')[0]];
      await answer?.wait;
      if (answer?.unreachable) throw new TypeError('Failed to fetch');
      if (answer) return new Response(JSON.stringify(answer.body), { status: answer.status ?? 200, headers: { 'content-type': 'application/json' } });
      if (path !== 'v1/admin/events') throw new TypeError(`no answer for ${path}`);
      const stream = {};
      stream.body = new ReadableStream({ start(controller) { stream.controller = controller; } });
      signal.addEventListener('abort', () => { stream.aborted = true; stream.controller.error(signal.reason); });
      window.streams.push(stream);
      return new Response(stream.body, { headers: { 'content-type': 'text/event-stream' } });
    };
    window.send = (state) => window.streams.at(-1).controller.enqueue(new TextEncoder().encode(`event: fleet\ndata: ${JSON.stringify(state)}\n\n`));
  });
  await page.addInitScript((answers) => Object.assign(window.answers, answers), answers);
  await page.goto(`${address}/console#/${view}`);
  return page;
}

/** Opens the fleet view with a first state. */
async function watch(context, state) {
  const page = await open(context, 'fleet');
  await page.waitForFunction(() => window.streams.length === 1);
  await send(page, state);
  return page;
}

/** Sends a state and waits until it is drawn. */
async function send(page, state) {
  await page.evaluate((state) => {
    // A text of its own shows that this state is drawn.
    window.marks = (window.marks ?? 0) + 1;
    window.send({ ...state, warnings: [...state.warnings, `mark ${window.marks}`] });
  }, state);
  await page.waitForFunction(() => document.querySelector('#fleet-body')?.innerText.includes(`mark ${window.marks}`));
}

const row = (page, number) => page.locator('.lanes tr', { has: page.getByRole('rowheader', { name: `worker ${number}`, exact: true }) });

const TESTS = {
  /** A worker that was held at the last read is not free, whatever the clock says; a free one is. */
  async heldWorkersAreNeverShownAsFree(context) {
    const page = await watch(context, fleet());
    assert.match(await row(page, 1).innerText(), /in 8 seconds/);
    assert.match(await row(page, 3).innerText(), /free for 5 seconds/);
    await page.clock.runFor(9000);
    assert.match(await row(page, 1).innerText(), /held until 12:00:08Z when last read/);
    assert.match(await row(page, 2).innerText(), /in 1 second/);
    // The node lives on, and its store does not answer: the clock of the leases stands still.
    await send(page, fleet({ at_unix_ms: NOON + 30_000, store: { answers: false, error: 'no answer within 5s', failing_since_unix_ms: NOON + 2000 } }));
    const body = await text(page, '#fleet-body');
    assert.match(await row(page, 2).innerText(), /held until 12:00:10Z when last read/);
    assert.doesNotMatch(body, /free for|are free/);
    assert.match(body, /1,022 of 1,024 workers were free/);
    assert.match(await text(page, '#fleet-age'), /as it was at 12:00:00Z, when the store last answered/);
    assert.equal(await page.locator('.lane .lease.free').count(), 1);
    await send(page, fleet({ at_unix_ms: NOON + 40_000, store: { read_unix_ms: NOON + 40_000 }, workers: [worker(1, NOON + 48_000), worker(2, NOON + 50_000)] }));
    assert.match(await row(page, 2).innerText(), /in 10 seconds/);
    assert.equal(await page.locator('#fleet-age').isVisible(), false);
    // The stream ends: the last state is shown as old.
    await page.evaluate(() => {
      window.streams.at(-1).controller.enqueue(new TextEncoder().encode('event: end\ndata: "this node is shutting down"\n\n'));
      window.streams.at(-1).controller.close();
    });
    await page.waitForFunction(() => document.querySelector('#fleet-live')?.innerText.includes('stream ended'));
    assert.match(await text(page, '#fleet-problems'), /The stream ended: this node is shutting down[\s\S]*view below is of 12:00:40Z/);
    await page.clock.runFor(20_000);
    assert.doesNotMatch(await text(page, '#fleet-body'), /free for|are free|in \d/);
    assert.match(await text(page, '#fleet-age'), /as it was at 12:00:40Z/);
  },

  /** The counts of a pool agree with each other, and a state changes only what differs. */
  async manyWorkersAreCountedAndKept(context) {
    const broken = { pool: POOL, worker: 9, state: 'unreadable' };
    const workers = (until) => [broken, ...Array.from({ length: 199 }, (_, index) => worker(index + 10, until))];
    const pools = [pool({ held: 1000, unreadable: 4, more_workers: 823, more_held: 801 })];
    const page = await watch(context, fleet({ workers: workers(NOON + 8000), pools }));
    const body = await text(page, '#fleet-body');
    assert.match(body, /20 of 1,024 workers are free, 4 unreadable/);
    assert.match(body, /and 823 more \(801 held\); `snowmint workers` lists all/);
    assert.match(await row(page, 9).innerText(), /unreadable record/);
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('.lane .lease')).transitionDuration), '0s');
    await page.evaluate(() => {
      const cell = [...document.querySelectorAll('.lanes td')].find((it) => it.innerText === 'node-12');
      getSelection().selectAllChildren(cell);
      window.changed = 0;
      new MutationObserver((records) => { for (const { addedNodes } of records) window.changed += addedNodes.length; }).observe(document.querySelector('.lanes'), { childList: true, subtree: true });
    });
    await send(page, fleet({ at_unix_ms: NOON + 2000, workers: workers(NOON + 10_000), pools, store: { read_unix_ms: NOON + 2000 } }));
    assert.deepEqual(await page.evaluate(() => [getSelection().toString(), window.changed]), ['node-12', 0]);
    assert.match(await row(page, 12).innerText(), /in 8 seconds/);
    // Few workers move smoothly.
    await send(page, fleet());
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.querySelector('.lane .lease')).transitionDuration), '0s');
  },

  /** A namespace that makes no ids does not look healthy. */
  async endedAndExhaustedNamespacesAreNamed(context) {
    const here = { available: true, exhausted: false, issued: 0 };
    const snowflake = (name, ends_unix_ms, days_left) => ({ name, scheme: 'snowflake', summary: 's', state: 'served', ends_unix_ms, days_left, here });
    const numbers = (name, changes) => ({ name, scheme: 'segment', summary: 's', state: 'served', reserved_to: '10', here: { ...here, exhausted: true, used: 1, ...changes } });
    const namespaces = [snowflake('old', NOON, 0), snowflake('last-day', NOON + 1, 0), snowflake('young', NOON + 90_000_000, 1), numbers('used-up', { left: 0 }), numbers('nearly', { left: 3 })];
    const page = await watch(context, fleet({ namespaces }));
    const states = await page.locator('#fleet-body tr').filter({ has: page.locator('td[data-name=Ids]') }).allInnerTexts();
    const shown = states.map((line) => [0, 3, 7].map((cell) => line.split('\t')[cell].trim()));
    assert.deepEqual(shown, [['old', 'ended', 'ended'], ['last-day', 'served', 'less than 1 day'], ['young', 'served', '1 day'], ['used-up', 'exhausted', '100.0% used'], ['nearly', 'last numbers', '100.0% used']]);
  },

  /** The cards name the node, times are UTC, and lengths of time do not come from the clock of the browser. */
  async cardsNameTheNodeAndItsTimes(context) {
    const change = { at: '2026-11-27T11:59:58.123Z', at_unix_ms: NOON - 1877, who: 'ops', from: 'here', action: 'add', subject: 'orders', details: 'd', outcome: 'made' };
    const page = await watch(context, fleet({ node: { wall_ahead_ms: -3 }, store: { clock_ahead_ms: 1200, clock_within_ms: 4 }, changes: [change] }));
    const [node, store] = await page.locator('.card').allInnerTexts();
    assert.match(node, /name\s+web-1:8080[\s\S]*running for\s+1 minute\n[\s\S]*wall clock\s+3 ms behind the clock of the ids/);
    assert.match(store, /its clock\s+at least 1,200 ms behind this clock[\s\S]*last answer\s+12:00:00Z/);
    assert.equal(await page.title(), 'web-1:8080 · Fleet · Snowmint');
    assert.match(await text(page, '#fleet-body'), /2026-11-27 11:59:58Z/);
    await page.evaluate(() => { location.hash = '#/design'; });
    await page.waitForSelector('#design:not([hidden])');
    assert.equal(await page.title(), 'Design a layout · Snowmint');
  },

  /** One lease that ends far in the future leaves the others visible, and large numbers do not look exact. */
  async extremeNumbersSpoilNothing(context) {
    const page = await watch(context, fleet({ node: { issued: 2 ** 60 }, workers: [worker(1, NOON + 8000), worker(2, NOON + 10_000), worker(4, 2 ** 62)], pools: [pool({ held: 3 })] }));
    const width = (number) => row(page, number).locator('.lease').evaluate((lease) => lease.getBoundingClientRect().width / lease.parentElement.getBoundingClientRect().width);
    await page.emulateMedia({ reducedMotion: 'reduce' });
    assert.ok(await width(1) > 0.6, 'the scale fits the usual leases');
    assert.equal(await width(4), 1);
    assert.match(await row(page, 4).innerText(), /in [\d,]+ years/);
    assert.match(await page.locator('.card').first().innerText(), /ids since the start\s+about 1,150 quadrillion/);
  },

  /** A connection that is half open delivers nothing and never ends. */
  async silentStreamsAreOpenedAgain(context) {
    const page = await watch(context, fleet());
    await page.clock.runFor(9000);
    assert.equal(await page.evaluate(() => window.streams.length), 1);
    await page.clock.runFor(2000);
    await page.waitForSelector('#fleet-problems .banner.error');
    assert.match(await text(page, '#fleet-problems'), /has stopped sending its state[\s\S]*view below is of 12:00:00Z/);
    assert.equal(await page.evaluate(() => window.streams[0].aborted), true);
    await page.clock.runFor(1000);
    await page.waitForFunction(() => window.streams.length === 2);
    await send(page, fleet());
    assert.equal(await text(page, '#fleet-live'), 'live');
    assert.equal(await page.locator('#fleet-problems .banner').count(), 0);
    // Nor does a node that never sends the first state keep the page waiting.
    await page.evaluate(() => window.streams.at(-1).controller.close());
    await page.waitForFunction(() => document.querySelector('#fleet-live')?.innerText.includes('stream ended'));
    await page.clock.runFor(1000);
    await page.waitForFunction(() => window.streams.length === 3);
    await page.clock.runFor(15_000);
    await page.waitForFunction(() => window.streams[2].aborted);
  },

  /** A tab that was hidden for an hour shows its state as old until the next one is there. */
  async hiddenTabsComeBackWithAnOldState(context) {
    const page = await watch(context, fleet());
    const hides = (hidden) => page.evaluate((hidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await hides(true);
    await page.clock.runFor(3_600_000);
    await hides(false);
    await page.waitForFunction(() => window.streams.length === 2);
    assert.match(await text(page, '#fleet-live'), /connecting; the view below is of 12:00:00Z/);
    assert.match(await text(page, '#fleet-age'), /as it was at 12:00:00Z/);
    assert.match(await row(page, 1).innerText(), /held until 12:00:08Z when last read/);
    await send(page, fleet({ at_unix_ms: NOON + 3_600_000, store: { read_unix_ms: NOON + 3_600_000 } }));
    assert.equal(await text(page, '#fleet-live'), 'live');
  },

  /** Nothing has to be hovered to be read, and each table has a name. */
  async tablesHaveNamesAndDescriptionsAreShown(context) {
    const change = { at: '2026-11-27T11:59:58.123Z', at_unix_ms: NOON - 1877, who: 'ops', from: 'here', action: 'add', subject: 'orders', details: 'd', outcome: 'made' };
    const namespaces = [{ name: 'orders', scheme: 'segment', summary: 'numbers from 1, cached', state: 'served', description: 'invoices of the shop' }];
    const page = await watch(context, fleet({ namespaces, changes: [change] }));
    for (const name of ['Nodes', 'Workers of time:41@1ms worker:10 sequence:12 epoch:2026-01-01', 'Namespaces', 'Newest changes']) assert.equal(await page.getByRole('table', { name, exact: true }).count(), 1, name);
    assert.match(await page.getByRole('table', { name: 'Namespaces' }).innerText(), /numbers from 1, cached[\s\S]*invoices of the shop/);
  },

  /** A problem is announced once, however often a state comes and its details change. */
  async problemsAreAnnouncedOnce(context) {
    const problem = (what, remedy) => ({ severity: 'error', what, remedy });
    const page = await watch(context, fleet({ problems: [problem('the store is gone', 'until 12:00:08')] }));
    const said = async () => { await page.clock.runFor(100); return page.locator('#said').textContent(); };
    assert.equal(await said(), 'the store is gone');
    await page.evaluate(() => { document.querySelector('#said').textContent = ''; });
    await send(page, fleet({ problems: [problem('the store is gone', 'until 12:00:10')] }));
    assert.match(await text(page, '#fleet-problems'), /until 12:00:10/);
    assert.equal(await said(), '');
    await send(page, fleet({ problems: [problem('the store is gone', 'until 12:00:10'), problem('a namespace ended')] }));
    assert.equal(await said(), 'a namespace ended');
  },

  /** A paused view stays as it is, also after the tab was hidden, until it continues. */
  async theViewCanBePaused(context) {
    const page = await watch(context, fleet());
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.waitForFunction(() => window.streams[0].aborted);
    assert.equal(await text(page, '#fleet-live'), 'paused; the view below is of 12:00:00Z');
    await page.clock.runFor(30_000);
    assert.match(await row(page, 1).innerText(), /held until 12:00:08Z when last read/);
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    assert.equal(await page.evaluate(() => window.streams.length), 1);
    await page.getByRole('button', { name: 'Pause', pressed: true }).click();
    await page.waitForFunction(() => window.streams.length === 2);
    await send(page, fleet());
    assert.equal(await text(page, '#fleet-live'), 'live');
  },

  /** Without the right, the page shows whether the node is ready now. */
  async readinessWithoutTheRightIsCurrent(context) {
    const ready = (until) => ({ body: { ready: true, leases: [{ worker: 1, until }, { worker: 2, until }] } });
    const page = await open(context, 'fleet', { 'v1/admin/events': { status: 403, body: { detail: 'the token has no right admin' } }, readyz: ready('2026-11-27T12:00:08.000Z') });
    await page.waitForSelector('.card .badge.good');
    assert.match(await text(page, '.card'), /worker 1\s+lease until 2026-11-27T12:00:08.000Z\s+worker 2\s+lease until/);
    assert.doesNotMatch(await text(page, '#fleet-body'), /object HTML/);
    await page.evaluate(() => { window.answers.readyz = { unreachable: true }; });
    await page.clock.runFor(5000);
    await page.waitForSelector('.card .badge.bad');
    assert.match(await text(page, '.card'), /not ready[\s\S]*the server does not answer/);
  },

  /** A phone shows each view without scrolling sideways, whatever the length of names, and breaks no label within a word. */
  async longNamesFitOnAPhone(context) {
    const name = 'n'.repeat(64);
    const holder = `${'web-in-a-stateful-set-with-a-long-name-'.repeat(3)}7.svc.cluster.local:8080`;
    const layout = { name: null, layout: 'time:41@1ms worker:10 sequence:12 epoch:2026-01-01T00:00:00.000Z', fields: [{ name: 'time', bits: 41, max: 2 ** 41 - 1 }, { name: 'worker', bits: 10, max: 1023 }, { name: 'sequence', bits: 12, max: 4095 }], bits: 63, tick_ms: 1, epoch_utc: '2026-01-01T00:00:00.000Z', epoch_unix_ms: NOON, last_utc: '2095-09-06T00:00:00.000Z', last_unix_ms: NOON * 2, years_left: 69, ids_per_second_per_worker: 4_096_000, workers: 1024, sorts_by_time: true, safe_in_javascript: false, warnings: [] };
    const namespaces = [{ name, scheme: 'segment', summary: `segment ${'s'.repeat(80)}`, available: true }];
    const answers = {
      'v1/server': { body: { version: '1.0.0', tokens: true, admin: true, resp: '0.0.0.0:6380', namespaces, more_namespaces: 0 } },
      'v1/layouts': { body: { layouts: [{ ...layout, name: 'l'.repeat(40), about: 'a'.repeat(90) }] } },
      'v1/layout': { body: layout },
      'v1/readings/7': { body: { readings: ['number', 'l'.repeat(40)].map((of) => ({ name: of, form: 'decimal', width: 64, id: '7', likelihood: 0.3, namespaces: [name, name], texts: [{ form: 'decimal', text: '7'.repeat(100) }] })) } },
    };
    const here = { available: true, exhausted: false, issued: 0, ids_per_second: 1e9, left: 1e9, lasts_s: 1, used: 0.5 };
    const change = { at: '2026-11-27T11:59:58.123Z', at_unix_ms: NOON - 1877, who: name, from: name, action: 'namespace-add', subject: name, details: name, failed: name, outcome: 'failed' };
    const state = fleet({
      node: { holder },
      nodes: [{ name: holder, state: 'gone', address: holder, version: '1.0.0', workers: [1, 2, 3, 9], store: `smst_${'s'.repeat(26)}`, why: name, seen_unix_ms: NOON }, { name: 'n', state: 'alive', workers: [], ids_per_second: 2 ** 40 }],
      problems: [{ severity: 'error', what: name, remedy: name }],
      workers: [{ ...worker(1, NOON + 8000), holder }, { ...worker(1023, NOON - 5000), state: 'free', lapsed: true, holder }],
      namespaces: [{ name, scheme: 'segment', summary: `segment ${name}`, state: 'served', owner: name, description: name, reserved_to: '9'.repeat(19), here }],
      changes: [change],
      warnings: [name],
    });
    for (const view of ['inspect', 'inspect/7', 'design', 'fleet', 'draw']) {
      const page = await open(context, view, answers);
      await page.setViewportSize({ width: 390, height: 860 });
      if (view === 'fleet') {
        await page.waitForFunction(() => window.streams.length === 1);
        await send(page, state);
      } else await page.waitForFunction((name) => [...document.querySelectorAll('option')].some((it) => it.value.includes(name)), name);
      if (view === 'design') await page.waitForSelector('#design-facts dd');
      if (view === 'inspect/7') await page.waitForSelector('.readings button');
      const wide = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        const beyond = [...document.querySelectorAll('main *')].filter((it) => it.getBoundingClientRect().right > clientWidth + 1);
        return scrollWidth > clientWidth ? beyond.map((it) => `${it.tagName} ${it.id} ${it.className}`).slice(0, 5) : [];
      });
      assert.deepEqual(wide, [], view);
      const broken = await page.evaluate(() => {
        const context = document.createElement('canvas').getContext('2d');
        const isBroken = (it, pseudo, text) => {
          const style = getComputedStyle(it, pseudo);
          context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
          const longest = Math.max(...text.split(/[\s-]/).map((word) => context.measureText(word).width));
          return (pseudo ? parseFloat(style.width) : it.clientWidth) < Math.floor(longest);
        };
        const cells = [...document.querySelectorAll('.stack td[data-name]')].filter((it) => it.offsetWidth > 0 && isBroken(it, '::before', it.dataset.name)).map((it) => it.dataset.name);
        const labels = [...document.querySelectorAll('dt, label:not(.hide), .slider > span')].filter((it) => it.offsetWidth > 0 && (isBroken(it, null, it.textContent) || (it.matches('.slider > span') && it.offsetHeight > 30))).map((it) => it.textContent);
        return [...new Set([...cells, ...labels])];
      });
      assert.deepEqual(broken, [], view);
    }
  },

  /** Tables of several pools are one table to the eye. */
  async columnsOfPoolsLineUp(context) {
    const other = 'time41@1ms.datacenter5.worker5.sequence12.1288834974657.in0';
    const workers = [worker(1, NOON + 8000), { ...worker(31, NOON + 8000), pool: other, holder: 'web-in-a-stateful-set-with-a-long-name-7.svc.cluster.local:8080' }];
    const page = await watch(context, fleet({ workers, pools: [pool({ held: 1 }), pool({ pool: other, workers: 32, held: 1 })] }));
    const [one, two] = await page.locator('.lanes').evaluateAll((tables) => tables.map((table) => [...table.querySelectorAll('th')].map((it) => Math.round(it.getBoundingClientRect().left))));
    assert.deepEqual(one, two);
    const lines = await row(page, 31).getByRole('rowheader').evaluate((it) => {
      const range = document.createRange();
      range.selectNodeContents(it);
      return range.getClientRects().length;
    });
    assert.equal(lines, 1);
  },

  /** A killed node is the first of the list, with its last sign of life; its lease, which nobody released, is named too. */
  async killedNodesAreNamed(context) {
    const nodes = [
      { name: 'web-4', state: 'gone', address: 'n4:9100', version: '1.0.0', workers: [], why: 'connection refused', seen_unix_ms: NOON - 60_000 },
      { name: 'web-5', state: 'late', workers: [5], why: 'it has not renewed the lease of worker 5 in time' },
      { name: 'web-3', state: 'not-ready', address: 'n3:9100', workers: [], why: 'no lease' },
      { name: 'web-1:8080', state: 'alive', here: true, version: '1.0.0', workers: [1, 2, 3, 7], ids_per_second: 12, store: 'smst_1' },
      { name: 'web-2', state: 'alive', address: 'n2:9100', workers: [9], ids_per_second: 1234, store: 'smst_2' },
    ];
    const page = await watch(context, fleet({ nodes, more_nodes: 3, store: { id: 'smst_1' }, workers: [worker(1, NOON + 8000), { ...worker(3, NOON - 5000), state: 'free', lapsed: true }] }));
    const shown = await page.locator('.nodes tbody tr').allInnerTexts();
    assert.deepEqual(shown.map((line) => line.replace(/\s+/g, ' ').trim()), [
      'web-4 gone – – 1.0.0 – last seen 1 minute ago, at 11:59:00Z; connection refused',
      'web-5 late 5 – – – it has not renewed the lease of worker 5 in time',
      'web-3 not ready – – – – no lease',
      'web-1:8080 (this node) alive 1–3, 7 12 1.0.0 this one',
      'web-2 alive 9 1,234 – smst_2 n2:9100',
    ]);
    assert.match(await text(page, '#fleet-body'), /^Nodes[\s\S]*and 3 more/);
    assert.match(await row(page, 3).innerText(), /ended 5 seconds ago, not released/);
  },

  /** A pool and a namespace have the name of their layout. */
  async layoutsHaveNames(context) {
    const layout = 'time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z';
    const page = await open(context, 'fleet', { 'v1/layouts': { body: { layouts: [{ name: 'twitter', layout }] } } });
    await page.waitForFunction(() => window.streams.length === 1);
    await send(page, fleet({ pools: [pool({ name: 'twitter', datacenter: 7 }), pool()], namespaces: [{ name: 'orders', scheme: 'snowflake', summary: `snowflake ${layout}, borrow(1s)`, state: 'served' }] }));
    const pools = await page.locator('.pool b').allInnerTexts();
    assert.deepEqual(pools, ['twitter, datacenter 7', 'time:41@1ms worker:10 sequence:12 epoch:2026-01-01']);
    assert.match(await page.getByRole('table', { name: 'Namespaces' }).innerText(), /snowflake twitter, borrow\(1s\)/);
  },

  /** The last hour is drawn from what the node remembers, in words too, and asked for as often as it changes. */
  async theLastHourIsDrawn(context) {
    const sample = (minutes, changes) => ({ at_unix_ms: NOON - minutes * 60_000, seconds: 30, ids_per_second: 100, namespaces: [['orders', 80], ['users', 15], ['a', 2], ['b', 1], ['c', 1]], store_errors: 0, failed_requests: 0, lease_left_s: 6.7, store_ms: 1.25, store_slowest_ms: 9, ...changes });
    // A gap of an outage, a sample without calls, and one that is older than an hour.
    const samples = [sample(61), sample(50), sample(49.5, { store_ms: undefined, store_slowest_ms: undefined }), sample(1, { store_errors: 3, lease_left_s: 0.4 }), sample(0.5, { ids_per_second: 4321, namespaces: [['orders', 4321]] })];
    const page = await open(context, 'fleet', { 'v1/admin/history': { body: { at_unix_ms: NOON, every_ms: 30_000, samples } } });
    await page.waitForFunction(() => window.streams.length === 1);
    await send(page, fleet());
    await page.waitForSelector('.plot path');
    assert.equal(await page.locator('.plot').count(), 4);
    const said = await page.locator('.plot svg').evaluateAll((all) => all.map((it) => it.getAttribute('aria-label')));
    assert.match(said[0], /^Ids a second in the last hour\. orders: now 4,320, at most 4,320; users: now 0, at most 15; .*others: /);
    assert.match(said[1], /mean: now 1\.25 ms, at most 1\.25 ms; slowest: now 9 ms/);
    assert.match(said[2], /left: now 6\.7 s/);
    assert.match(said[3], /calls to the store: now 0, at most 3; requests: now 0, at most 0/);
    const path = await page.locator('.plot path').first().getAttribute('d');
    assert.equal(path.match(/M/g).length, 2, `the gap is no line: ${path}`);
    // The reading below the pointer.
    await page.locator('.plot svg').last().scrollIntoViewIfNeeded();
    const { x, y, width } = await page.locator('.plot svg').last().boundingBox();
    await page.mouse.move(x + width * (59 / 60), y + 10);
    assert.match(await page.locator('.plot').last().innerText(), /calls to the store 3[\s\S]*11:59:00Z/);
    // Asked for again, and a failure is named.
    await page.evaluate(() => { window.answers['v1/admin/history'] = { status: 503, body: { detail: 'too busy' } }; });
    await page.clock.runFor(30_000);
    await page.waitForFunction(() => document.querySelector('#fleet-plots')?.innerText === 'Not known: too busy');
  },

  /** A change without an author begins with no comma. */
  async changesWithoutAnAuthorAreReadable(context) {
    const change = { at: '2026-11-27T11:59:58.123Z', at_unix_ms: NOON - 1877, who: '', from: '10.0.0.7', action: 'add', subject: 'orders', details: 'd', outcome: 'made' };
    const page = await watch(context, fleet({ changes: [change, { ...change, who: 'ops', from: '' }] }));
    assert.deepEqual(await page.locator('td[data-name=Who]').allInnerTexts(), ['10.0.0.7', 'ops']);
  },

  /** Advice on a layout is shown once, and a text that is no layout is not drawn as one. */
  async adviceOnLayoutsIsShownOnce(context) {
    const layout = { name: null, layout: 'sequence:22 time:41 epoch:2026-01-01', fields: [{ name: 'sequence', bits: 22, max: 4194303 }, { name: 'time', bits: 41, max: 2 ** 41 - 1 }], bits: 63, tick_ms: 1, epoch_utc: '2026-01-01T00:00:00.000Z', epoch_unix_ms: NOON, last_utc: '2095-09-06T00:00:00.000Z', last_unix_ms: NOON * 2, years_left: 69, ids_per_second_per_worker: 4_194_304_000, workers: 1, sorts_by_time: false, safe_in_javascript: false, warnings: ['the timestamp is not on top: ids of different workers do not sort by time', 'there is one worker: only one node can make ids at a time'] };
    const page = await open(context, 'design', { 'v1/layout': { body: layout } });
    await page.waitForSelector('#design-facts dd');
    const facts = await text(page, '#design-facts');
    for (const advice of ['not on top', 'one node']) assert.equal(facts.split(advice).length, 2, facts);
    assert.match(await text(page, '#design-bits'), /63 of 63 bits/);
    await page.evaluate(() => { window.answers['v1/layout'] = { status: 400, body: { detail: 'invalid layout `nope`' } }; });
    await page.fill('#design-spec', 'nope');
    await page.press('#design-spec', 'Enter');
    await page.waitForSelector('#design-facts .banner.error');
    assert.doesNotMatch(await text(page, '#design'), /63 of 63|Use it/);
    // The sliders go on from the last layout.
    await page.locator('#design-sliders input[type=number]').first().fill('20');
    assert.match(await text(page, '#design-bits'), /61 of 63 bits/);
  },

  /** The page draws from the namespace that its address names, or not at all. */
  async onlyTheNamedNamespaceIsDrawn(context) {
    const server = { version: '1.0.0', tokens: false, admin: false, namespaces: [{ name: 'default', scheme: 'snowflake', summary: 's', available: true }], more_namespaces: 0 };
    const page = await open(context, 'draw/orders', { 'v1/server': { body: server } });
    const drawing = page.getByRole('button', { name: 'Draw', exact: true });
    const draws = () => page.evaluate(() => window.requests.filter((path) => path.startsWith('v1/ids/')));
    // The stub lists `default` for each question, also for the one about `orders`.
    await page.waitForFunction(() => window.requests.includes('v1/server?namespace=orders'));
    await page.waitForFunction(() => document.querySelector('#draw-button')?.disabled === false);
    assert.equal(await page.inputValue('#draw-namespace'), 'orders');
    // An answer that does not come: the button sends one request, and then it works again.
    await page.evaluate(() => { window.answers['v1/ids/orders'] = { wait: new Promise((done) => { window.answerNow = done; }), body: { ids: ['7', '8', '9'] } }; });
    await drawing.click();
    await drawing.click({ force: true });
    assert.deepEqual(await draws(), ['v1/ids/orders?count=3']);
    await page.evaluate(() => window.answerNow());
    await page.waitForSelector('#draw-result li');
    assert.match(await text(page, '#draw-result'), /^3 ids of orders/);
    await page.evaluate(() => { window.answers['v1/server'].body.namespaces = []; });
    for (const name of ['unknown', '%']) {
      await page.evaluate((name) => { location.hash = `#/draw/${name}`; }, name);
      await page.waitForSelector('#draw-note .banner');
      assert.match(await text(page, '#draw-note'), new RegExp(`no namespace ${name}, or your token may not use it`));
      assert.deepEqual([await drawing.isDisabled(), await page.inputValue('#draw-namespace')], [true, name]);
      await page.evaluate(() => { location.hash = '#/draw/default'; });
      await page.waitForFunction(() => document.querySelector('#draw-button')?.disabled === false);
      assert.equal(await page.inputValue('#draw-namespace'), 'default');
    }
    assert.equal((await draws()).length, 1);
  },

  /** Without the server, the page says so and offers to try again. */
  async anUnreachableServerIsNamed(context) {
    const page = await open(context, 'draw', { 'v1/server': { unreachable: true } });
    await page.waitForSelector('#draw-note .banner.error');
    assert.match(await text(page, '#draw-note'), /the server does not answer/);
    assert.equal(await page.getByRole('button', { name: 'Draw', exact: true }).isDisabled(), true);
    await page.evaluate(() => { window.answers['v1/server'] = { body: { namespaces: [], more_namespaces: 0 } }; });
    await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Try again' }).click()]);
  },

  /** A token that would be sent in plain text comes with a warning. */
  async plainHttpIsNamedBeforeATokenIsEntered(context) {
    for (const secure of [true, false]) {
      const page = await context.newPage();
      await page.addInitScript((secure) => Object.defineProperty(window, 'isSecureContext', { get: () => secure }), secure);
      await page.goto(`${address}/console`);
      await page.click('#token-button');
      await page.waitForSelector('#token-panel:not([hidden])');
      assert.equal(await page.locator('#token-insecure').isVisible(), !secure);
      await page.close();
    }
  },

  /** An address that no view has shows the first view. */
  async strangeAddressesShowAView(context) {
    for (const view of ['toString', 'constructor/x', '%']) {
      const page = await open(context, view);
      await page.waitForSelector('#inspect:not([hidden])');
      assert.equal(await page.title(), 'Inspect · Snowmint');
      await page.close();
    }
  },
};

(async () => {
  const context = await launch();
  for (const [name, test] of Object.entries(TESTS)) {
    await test(context).catch((error) => failed.push(`${name}: ${error.stack}`));
    for (const page of context.pages().slice(1)) await page.close();
  }
  await context.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  assert.equal(failed.join('\n\n'), '');
  process.exit(0);
})().catch((error) => {
  console.error(error);
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  process.exit(1);
});
