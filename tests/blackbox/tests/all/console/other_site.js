// A page of another site tries to use up ids: by each address that leads to the server, as a request, an
// image, a form and a WebSocket. The page is served by a port of its own; the test that runs it counts the
// ids.

const { createServer } = require('node:http');

const ways = (address, path) => [
  () => fetch(`http://${address}${path}`, { mode: 'no-cors' }),
  () => fetch(`http://${address}${path}`, { mode: 'no-cors', method: 'POST' }),
  () => new Promise((done) => { const image = new Image(); image.onload = image.onerror = done; image.src = `http://${address}${path}?count=2`; }),
  () => new Promise((done) => { const socket = new WebSocket(`ws://${address}${path}`); socket.onopen = socket.onerror = done; }),
  () => new Promise((done) => {
    const frame = Object.assign(document.createElement('iframe'), { name: 'answer', onload: done });
    const form = Object.assign(document.createElement('form'), { method: 'POST', action: `http://${address}${path}?count=3`, target: 'answer' });
    document.body.append(frame, form);
    form.submit();
  }),
];

(async () => {
  const site = createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<!doctype html><body>'));
  await new Promise((done) => site.listen(0, '127.0.0.1', done));
  const context = await launch();
  try {
    const page = await context.newPage();
    await page.goto(`http://other.localhost:${site.address().port}/`);
    for (const host of ['127.0.0.1', 'localhost', 'a.localhost', '0.0.0.0', '[::ffff:127.0.0.1]', 'localhost.']) {
      const address = `${host}:${asked.port}`;
      await page.evaluate(`(async () => {
        const within = (way) => Promise.race([way(), new Promise((done) => setTimeout(done, 5000))]);
        for (const way of (${ways})(${JSON.stringify(address)}, '/v1/ids/made-by-a-page')) await within(way).catch(() => {});
      })()`);
    }
    // The console itself, as a page of its own site, draws by the same requests.
    await page.goto(`http://127.0.0.1:${asked.port}/console`);
    const status = await page.evaluate(() => fetch('/v1/ids/default', { method: 'POST' }).then((answer) => answer.status));
    assert.equal(status, 200);
  } finally {
    await context.close();
    site.close();
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  }
})();
