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
    window.answers = { 'v1/server': { body: { version: '1.0.0', tokens: false, admin: true, namespaces: [], more_namespaces: 0 } }, 'v1/layouts': { body: { layouts: [] } } };
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
  await page.waitForFunction(() => document.querySelector('#fleet-body').innerText.includes(`mark ${window.marks}`));
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
    await page.waitForFunction(() => document.querySelector('#fleet-live').innerText.includes('stream ended'));
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
    const states = await page.locator('#fleet-body tr').filter({ has: page.locator('td[data-name=State]') }).allInnerTexts();
    const shown = states.map((line) => [0, 2, 6].map((cell) => line.split('\t')[cell].trim()));
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
    await page.waitForFunction(() => document.querySelector('#fleet-live').innerText.includes('stream ended'));
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
    for (const name of [`Workers of ${POOL}`, 'Namespaces', 'Newest changes']) assert.equal(await page.getByRole('table', { name, exact: true }).count(), 1, name);
    assert.match(await page.getByRole('table', { name: 'Namespaces' }).innerText(), /invoices of the shop[\s\S]*numbers from 1, cached/);
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

  /** The page draws from the namespace that its address names, or not at all. */
  async onlyTheNamedNamespaceIsDrawn(context) {
    const server = { version: '1.0.0', tokens: false, admin: false, namespaces: [{ name: 'default', scheme: 'snowflake', summary: 's', available: true }], more_namespaces: 0 };
    const page = await open(context, 'draw/orders', { 'v1/server': { body: server } });
    const drawing = page.getByRole('button', { name: 'Draw', exact: true });
    const draws = () => page.evaluate(() => window.requests.filter((path) => path.startsWith('v1/ids/')));
    // The stub lists `default` for each question, also for the one about `orders`.
    await page.waitForFunction(() => window.requests.includes('v1/server?namespace=orders'));
    await page.waitForFunction(() => !document.querySelector('#draw-button').disabled);
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
      await page.waitForFunction(() => !document.querySelector('#draw-button').disabled);
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
  rmSync(folder, { recursive: true, force: true });
  assert.equal(failed.join('\n\n'), '');
  process.exit(0);
})().catch((error) => {
  console.error(error);
  rmSync(folder, { recursive: true, force: true });
  process.exit(1);
});
