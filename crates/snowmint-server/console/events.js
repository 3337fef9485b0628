// The stream of states of the fleet: reads it, and opens it again when it ends. `fetch` can send a token, an `EventSource` cannot.

import { headers, problemOf } from './page.js';

/** How long a node may take to send its first state, and each later one after the time that it announced. */
const [FIRST, LATE] = [15_000, 8000];

/** Waits, or until `signal` is aborted. */
export const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

/**
 * Follows the stream until `signal` is aborted, or until the node answers that the token is invalid or lacks the right. It calls
 * `on.state` with each state, `on.end` with the reason that the node gives for an end, `on.lost` after each end with the error, if
 * there is one, and `on.refused` with the answer of the node.
 */
export async function follow(signal, on) {
  let wait = 1000;
  while (!signal.aborted) {
    const error = await attempt(signal, on, () => { wait = 1000; });
    if (signal.aborted) return;
    if ([401, 403].includes(error?.status)) return on.refused(error);
    on.lost(error);
    await pause(wait, signal);
    wait = Math.min(wait * 2, 15_000);
  }
}

/** Reads one stream to its end, and returns the error that ended it. A stream that falls silent is cut: its node may be gone. */
async function attempt(signal, on, connected) {
  const cut = new AbortController();
  const stop = () => cut.abort();
  signal.addEventListener('abort', stop);
  let timer;
  let silent = false;
  const expect = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(() => { silent = true; stop(); }, ms);
  };
  expect(FIRST);
  const state = (received) => {
    expect(received.next_in_ms + LATE);
    on.state(received);
  };
  try {
    await read(cut.signal, { ...on, state }, connected);
    return undefined;
  } catch (error) {
    return silent ? { status: 0, silent } : error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
  }
}

async function read(signal, on, connected) {
  let response;
  try {
    response = await fetch('v1/admin/events', { headers: headers(), cache: 'no-store', signal });
  } catch {
    throw Object.assign(new Error(), { status: 0 });
  }
  if (!response.ok) throw await problemOf(response);
  connected();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf('\n\n')) >= 0) {
      event(text.slice(0, end), on);
      text = text.slice(end + 2);
    }
  }
}

function event(lines, on) {
  const fields = Object.fromEntries(lines.split('\n').filter((line) => line.includes(': ')).map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]));
  if (fields.event === 'fleet') on.state(JSON.parse(fields.data));
  else if (fields.event === 'end') on.end(JSON.parse(fields.data));
}
