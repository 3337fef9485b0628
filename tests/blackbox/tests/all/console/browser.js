// Drives the console in Chromium: clicks, types, uses only the keyboard, and looks for faults of accessibility, content policy
// and layout. The test that runs it starts the servers; its arguments are one JSON object.

const axe = require('axe-core').source;

const { open, fleet, token, layout, pictures } = asked;
const faults = [];

const ID = '1541815603606036480';

/** Follows what no visit may have: errors, violations of the policy, requests to elsewhere. */
function watch(page, expected) {
  page.on('console', (message) => {
    const text = message.text();
    // The browser reports each answer of 400 and above as an error.
    if (message.type() === 'error' && !(expected.test(text) && text.startsWith('Failed to load resource'))) faults.push(`console: ${text}`);
  });
  page.on('pageerror', (error) => faults.push(`script: ${error.message}`));
  page.on('request', (request) => {
    const { origin } = new URL(request.url());
    if (![open, fleet].includes(origin)) faults.push(`a request to ${origin}`);
  });
}

async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  for (const { id, impact, nodes } of violations) {
    if (impact === 'serious' || impact === 'critical') faults.push(`${where}: ${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).slice(0, 3).join('; ')}`);
  }
}

async function fits(page, where) {
  const { content, screen } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, screen: innerWidth }));
  if (content > screen) faults.push(`${where}: ${content} px are wider than the screen of ${screen} px`);
}

const text = (page, selector) => page.locator(selector).innerText();
const bits = (page) => page.locator('#inspect-result .bits i').allInnerTexts().then((all) => all.join(''));
const picture = async (page, name) => { if (pictures) await page.screenshot({ path: join(pictures, `console-${name}.png`) }); };
const settled = (page) => page.waitForFunction(() => document.querySelector('#inspect-result')?.getAttribute('aria-busy') === 'false');

async function inspects(page) {
  const loaded = [];
  page.on('response', (response) => { if (response.url().startsWith(open) && loaded) loaded.push(response); });
  const first = await page.goto(`${open}/`, { waitUntil: 'networkidle' });
  const bytes = await Promise.all(loaded.map((response) => response.body().then((body) => body.length)));
  const total = bytes.reduce((sum, size) => sum + size, 0);
  // Most of it is text that people may read; a third are the named layouts. The view of the fleet loads its plots by itself.
  assert.ok(total < 120_000, `${total} bytes at the first load`);
  assert.match(first.headers()['content-security-policy'], /default-src 'none'/);

  // An example is there at once, and says that it is one.
  await page.waitForSelector('#inspect-result .example');
  assert.match(await text(page, '#inspect-result'), /An example: 1541815603606036480, an id of Twitter[\s\S]*2022-06-28T16:07:40\.105Z/);
  assert.equal(await bits(page), BigInt(ID).toString(2).padStart(64, '0'));
  assert.equal(await page.inputValue('#inspect-text'), '');
  await page.fill('#inspect-text', ID);
  await page.press('#inspect-text', 'Enter');
  await page.waitForSelector('#inspect-result .texts');
  assert.match(await text(page, '#inspect-result .answer'), /^twitter/);
  assert.match(await text(page, '#inspect-result .when'), /2022-06-28T16:07:40\.105Z/);
  assert.equal(await bits(page), BigInt(ID).toString(2).padStart(64, '0'));
  assert.match(await text(page, '#inspect-result'), /base62\s+1ptWyK4WgZU/);
  assert.ok(page.url().endsWith(`#/inspect/${ID}`), page.url());

  // Select another reading, which is then in the address, so that the link shows it.
  const other = page.locator('.readings button').nth(1);
  const name = (await other.locator('span').first().innerText()).trim();
  await other.click();
  assert.ok((await text(page, '#inspect-result .answer')).startsWith(name));
  const link = page.url();
  assert.match(link, /[?&]as=/);
  await page.goto('about:blank');
  await page.goto(link);
  await page.waitForSelector('#inspect-result .answer');
  assert.ok((await text(page, '#inspect-result .answer')).startsWith(name), 'a link shows the chosen reading');

  await page.locator('.texts button').first().click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), ID);

  // Other kinds of ids, by their address.
  for (const [id, shown, width] of [['01ARZ3NDEKTSV4RRFFQ69G5FAV', /^ulid/, 128], ['507f1f77bcf86cd799439011', /^objectid/, 96], [`${ID}?layout=discord`, /^discord/, 64]]) {
    await page.goto(`${open}/#/inspect/${id}`);
    await page.waitForFunction((wanted) => document.querySelectorAll('#inspect-result .bits i').length === wanted, width);
    await settled(page);
    assert.match(await text(page, '#inspect-result .answer'), shown);
  }
  await page.selectOption('#inspect-by', { label: 'sonyflake' });
  await page.waitForFunction(() => document.querySelector('#inspect-result .answer')?.innerText.startsWith('sonyflake'));

  // Text from other users is shown as text.
  const hostile = '<img src=x onerror=alert(1)>';
  await page.selectOption('#inspect-by', '');
  await page.fill('#inspect-text', hostile);
  await page.press('#inspect-text', 'Enter');
  await page.waitForFunction(() => document.querySelector('#inspect-result .banner')?.innerText.includes('<img'));
  assert.equal(await page.locator('#inspect-result img').count(), 0);
}

/** The first steps of somebody without a mouse: past the navigation, an id, another view, another theme. */
async function byKeyboard(page) {
  await page.goto(`${open}/console`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  for (let tries = 0; tries < 4 && (await page.evaluate(() => document.activeElement.id)) !== 'inspect-text'; tries += 1) await page.keyboard.press('Tab');
  await page.keyboard.type('175928847299117063');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#inspect-result .answer');
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(ring, 'none', 'the focus is visible');
  await page.locator('nav a[data-view=design]').focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#design .slider');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'design-title');
  await page.locator('#theme-button').focus();
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  await page.keyboard.press('Enter');
  await page.reload();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark', 'the theme is kept');
  await page.keyboard.press('Tab');
  await page.evaluate(() => localStorage.clear());
}

async function designs(page) {
  await page.goto(`${open}/#/design`);
  await page.waitForSelector('#design-facts .facts');
  const slider = page.getByRole('slider', { name: 'worker, bits' });
  await slider.focus();
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction(() => document.querySelector('#design-spec').value.includes('worker:9'));
  const facts = await text(page, '#design-facts');
  assert.match(facts, /Workers\s+512/);
  assert.match(facts, new RegExp(`Lasts until\\s+${layout.last_utc.slice(0, 10)}`));
  assert.match(facts, /4,096,000|4\.1 million/);
  assert.equal(await page.inputValue('#design-spec'), layout.layout);
  assert.match(await text(page, '#design-commands'), /snowmint serve --layout 'time:41/);

  // Too many bits are rejected with the server's message.
  await page.getByRole('spinbutton', { name: 'sequence' }).fill('20');
  await page.waitForSelector('#design-facts .banner.error');
  assert.match(await text(page, '#design-facts .banner.error'), /invalid layout/);
  assert.match(await text(page, '#design-bits'), /too many/);

  await page.fill('#design-spec', 'worker:10 time:41@10ms sequence:8 epoch:2015-01-01');
  await page.press('#design-spec', 'Enter');
  await page.waitForSelector('#design-facts .banner.warn');
  assert.match(await text(page, '#design-facts'), /timestamp is not on top/);
  await page.getByRole('button', { name: 'Move time up' }).click();
  await page.waitForFunction(() => document.querySelector('#design-spec').value.startsWith('time:41@10ms worker:10'));
  assert.doesNotMatch(await text(page, '#design-facts'), /not on top/);
  await page.selectOption('#design-preset', 'sonyflake');
  await page.waitForFunction(() => document.querySelector('#design-spec').value.startsWith('time:39@10ms sequence:8 worker:16'));
}

async function draws(page) {
  await page.goto(`${open}/#/draw/default`);
  await page.waitForSelector('#draw-code pre');
  await page.fill('#draw-count', '5');
  await page.getByRole('button', { name: 'Draw' }).click();
  await page.waitForSelector('#draw-result li');
  const ids = await page.locator('#draw-result li').allInnerTexts();
  assert.equal(new Set(ids).size, 5);
  const programs = await page.locator('#draw-code pre').allInnerTexts();
  await page.locator('#draw-result li a').first().click();
  await page.waitForSelector('#inspect-result .answer');
  assert.equal(await bits(page), BigInt(ids[0]).toString(2).padStart(64, '0'));
  // Without a token, the fleet view says that it needs one.
  await page.goto(`${open}/#/fleet`);
  await page.waitForSelector('#fleet-body pre');
  assert.match(await text(page, '#fleet-body'), /snowmint token create/);
  return programs;
}

async function watches(page) {
  await page.goto(`${fleet}/`);
  await page.waitForSelector('#token-panel:not([hidden])');
  assert.match(await text(page, '#token-note'), /authentication required/);
  await page.keyboard.type(token);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#token-button')?.innerText.includes('set'));
  await page.click('nav a[data-view=fleet]');
  await page.waitForSelector('.lane .lease');
  await page.waitForFunction(() => document.querySelector('#fleet-live')?.innerText === 'live');
  assert.match(await text(page, '#fleet-body'), /^Nodes[\s\S]*this node[\s\S]*alive[\s\S]*ready[\s\S]*answers[\s\S]*worker 5[\s\S]*this node/);
  const lease = await page.locator('.lane .lease').first().boundingBox();
  assert.ok(lease.width > 5, `a lease of ${lease.width} px`);
  // Names and texts from other users are shown as text.
  await page.waitForFunction(() => document.querySelector('#fleet-body')?.innerText.includes('<script>alert(1)</script>'));
  assert.equal(await page.locator('#main img, #main script').count(), 0);
  // A change appears without a user request.
  await page.evaluate(async (token) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const added = await fetch('v1/admin/namespaces/late', { method: 'PUT', headers, body: '{"scheme":"segment"}' });
    if (!added.ok) throw new Error(await added.text());
  }, token);
  await page.waitForFunction(() => document.querySelector('#fleet-body')?.innerText.includes('token ops'), null, { timeout: 15_000 });
  await page.waitForFunction(() => [...document.querySelectorAll('#fleet-body th')].some((it) => it.innerText === 'late'));
  // A hidden tab holds no stream.
  const isStream = (request) => request.url().endsWith('/v1/admin/events');
  const hides = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await Promise.all([page.waitForEvent('requestfailed', isStream), hides(true)]);
  await Promise.all([page.waitForEvent('request', isStream), hides(false)]);
  await page.waitForFunction(() => document.querySelector('#fleet-live')?.innerText === 'live');
}

/** The store goes away and comes back: the test that runs this says so on its standard input. */
async function seesTrouble(page, next) {
  console.log('cut');
  await next();
  await page.waitForSelector('#fleet-problems .banner.error', { timeout: 20_000 });
  assert.match(await text(page, '#fleet-problems'), /does not answer since[\s\S]*check that the store runs/);
  assert.match(await text(page, '#fleet-body'), /does not answer/);
  await page.setViewportSize({ width: 1280, height: 640 });
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  await picture(page, 'fleet-trouble');
  console.log('mend');
  // A store that was silent is read again after 30 s at the latest.
  await next();
  await page.waitForFunction(() => !document.querySelector('#fleet-problems .banner.error'), null, { timeout: 45_000 });
  console.log('stop');
  await next();
  await page.waitForFunction(() => /stream ended|not connected/.test(document.querySelector('#fleet-live')?.innerText), null, { timeout: 10_000 });
  // The view updates its age every second, and still says that it is not connected.
  await page.waitForTimeout(2500);
  assert.doesNotMatch(await text(page, '#fleet-live'), /^live/);
}

const VIEWS = [['inspect', `${open}/#/inspect/${ID}`, '#inspect-result .texts'], ['design', `${open}/#/design`, '#design-facts .facts'], ['draw', `${open}/#/draw`, '#draw-code pre'], ['fleet', `${fleet}/#/fleet`, '.lane .lease']];

/** Every view in both themes, on a large and on a small screen. */
async function looks(browserPage) {
  for (const [size, viewport] of [['wide', { width: 1280, height: 900 }], ['phone', { width: 390, height: 844 }]]) {
    await browserPage.setViewportSize(viewport);
    for (const [name, address, ready] of VIEWS) {
      await browserPage.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
      await browserPage.goto('about:blank');
      await browserPage.goto(address);
      await browserPage.waitForSelector(ready);
      await settled(browserPage);
      if (name === 'draw') {
        await browserPage.getByRole('button', { name: 'Draw' }).click();
        await browserPage.waitForSelector('#draw-result li');
      }
      // A rate needs two states.
      if (name === 'fleet' && pictures) await browserPage.waitForTimeout(4500);
      for (const colorScheme of ['light', 'dark']) {
        await browserPage.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await fits(browserPage, `${name}, ${size}`);
        // Each theme once, since it takes long.
        if ((size === 'wide') === (colorScheme === 'light')) await accessible(browserPage, `${name}, ${size}, ${colorScheme}`);
        await picture(browserPage, `${name}-${size}-${colorScheme}`);
      }
    }
  }
}

(async () => {
  const context = await launch({ permissions: ['clipboard-read', 'clipboard-write'] });
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  const page = context.pages()[0];
  // Invalid input, a missing token or right, and a store that is down.
  watch(page, /400|401|403|ERR_/);
  const input = process.stdin.setEncoding('utf8')[Symbol.asyncIterator]();
  const next = async () => { await input.next(); };
  const step = async (name, work) => {
    const began = Date.now();
    const result = await work().catch((error) => { throw new Error(`${name} at ${page.url()}: ${error.stack}`); });
    console.log(`# ${name} took ${Date.now() - began} ms`);
    return result;
  };
  await step('inspect', () => inspects(page));
  await step('keyboard', () => byKeyboard(page));
  await step('design', () => designs(page));
  const programs = await step('draw', () => draws(page));
  await step('fleet', () => watches(page));
  await step('looks', () => looks(page));
  await step('trouble', () => seesTrouble(page, next));
  await context.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  assert.deepEqual(faults, []);
  console.log(JSON.stringify({ programs }));
  process.exit(0);
})().catch((error) => {
  console.error(error);
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  process.exit(1);
});
