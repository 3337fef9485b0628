import assert from "node:assert/strict";
import test from "node:test";

import { closed, SnowmintError } from "../src/errors.js";
import { Source } from "../src/source.js";
import { StringIds } from "../src/ids.js";
import { settled, TestClock } from "./test_clock.js";
import { TestServers } from "./test_servers.js";

function open(options: { maxAge?: number; buffer?: [number, number]; timeout?: number } = {}) {
  const clock = new TestClock();
  const servers = new TestServers(["a"], clock, { timeout: options.timeout ?? 5000 });
  const { maxAge = Infinity, buffer = [0, 100] } = options;
  const source = new Source("orders", false, { shared: servers.shared, maxAge, buffer });
  return { clock, servers, source, ids: new StringIds(source) };
}

const isKind = (kind: string) => (thrown: unknown) => thrown instanceof SnowmintError && thrown.kind === kind;

void test("calls that begin together share a request, and are served in order", async () => {
  const { servers, ids } = open();
  const calls = [ids.next(), ids.nextMany(2), ids.next()];
  await settled();
  assert.equal(servers.requests.length, 1);
  assert.equal(servers.request(0).count, 4 + 16);
  servers.request(0).grant();
  assert.deepEqual(await Promise.all(calls), ["1", ["2", "3"], "4"]);
  assert.equal(ids.buffered, 16);
  assert.equal(await ids.next(), "5");
});

void test("a call takes the ids in memory, and waits for the rest", async () => {
  const { servers, ids } = open({ buffer: [4, 4] });
  const first = ids.next();
  await settled();
  servers.request(0).grant();
  assert.equal(await first, "1");
  const many = ids.nextMany(6);
  await settled();
  assert.equal(servers.request(1).count, 2 + 4);
  servers.request(1).grant();
  assert.deepEqual(await many, ["2", "3", "4", "5", "6", "7"]);
});

void test("an abort ends the wait with its reason, and the ids go to the next call", async () => {
  const { clock, servers, ids } = open({ buffer: [0, 0] });
  const controller = new AbortController();
  const reason = new Error("enough");
  const left = ids.nextMany(2, { signal: controller.signal });
  await settled();
  const next = ids.next();
  controller.abort(reason);
  await assert.rejects(left, reason);
  servers.request(0).grant();
  assert.equal(await next, "1");
  assert.equal(clock.timers, 0);
  for (const call of [ids.next({ signal: controller.signal }), ids.nextMany(2, { signal: controller.signal })]) {
    await assert.rejects(call, reason);
  }
  await settled();
  assert.equal(servers.requests.length, 1);
});

void test("an aborted signal is an error even if ids are in memory", async () => {
  const { servers, ids } = open();
  const first = ids.next();
  await settled();
  servers.request(0).grant();
  await first;
  await assert.rejects(ids.next({ signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(ids.buffered, 16);
});

void test("a call ends at its timeout, with what failed last", async () => {
  const { clock, servers, ids } = open({ timeout: 100 });
  const call = ids.next();
  await settled();
  servers.request(0).fail({ detail: "broken", status: 500, retryAfter: 90 });
  const rejected = assert.rejects(call, {
    name: "SnowmintError",
    kind: "Unavailable",
    temporary: true,
    namespace: "orders",
    server: "http://a",
    status: 500,
    message:
      'no ids of namespace "orders" within 100 ms: http://a: broken; check that a server runs and can be reached',
  });
  await clock.advance(100);
  await rejected;
});

void test("a final error goes to every call, and stops refills for 1 s", async () => {
  const { clock, servers, ids } = open();
  const calls = [ids.next(), ids.nextMany(2)].map((call) => assert.rejects(call, isKind("UnknownNamespace")));
  await settled();
  servers.request(0).fail({ kind: "UnknownNamespace", retry: "never", status: 404 });
  await Promise.all(calls);
  assert.equal(ids.tryNext(), null);
  await clock.advance(999);
  assert.equal(ids.tryNext(), null);
  await settled();
  assert.equal(servers.requests.length, 1);
  await clock.advance(1);
  assert.equal(ids.tryNext(), null);
  await settled();
  assert.equal(servers.requests.length, 2);
});

void test("no server returns that many ids: a quarter is requested, and all calls are served", async () => {
  const { servers, ids } = open({ buffer: [0, 0] });
  const call = ids.nextMany(8);
  await settled();
  servers.request(0).fail({ retry: "fewer" });
  await settled();
  assert.equal(servers.request(1).count, 2);
  servers.request(1).grant();
  await settled();
  assert.equal(servers.request(2).count, 4);
  servers.request(2).grant();
  await settled();
  servers.request(3).grant();
  assert.deepEqual(await call, ["1", "2", "3", "4", "5", "6", "7", "8"]);
});

// Goal: a call that waits for several answers drops and replaces ids that became too old, but only once, so that it ends.
void test("ids that become too old while a call waits are replaced once", async () => {
  const { clock, servers, ids } = open({ buffer: [0, 0], maxAge: 100, timeout: 60_000 });
  const call = ids.nextMany(4);
  await settled();
  servers.request(0).fail({ retry: "fewer" });
  await settled();
  for (const count of [1, 2, 2]) {
    assert.equal(servers.request(-1).count, count);
    await clock.advance(200);
    servers.request(-1).grant();
    await settled();
  }
  assert.deepEqual(await call, ["2", "3", "4", "5"]);
});

void test("a draw below half of the target starts one refill in the background", async () => {
  const { servers, ids } = open({ buffer: [10, 10] });
  const first = ids.next();
  await settled();
  servers.request(0).grant();
  await first;
  await ids.nextMany(5);
  await settled();
  assert.equal(servers.requests.length, 1);
  ids.tryNext();
  ids.tryNext();
  await settled();
  assert.equal(servers.requests.length, 2);
  assert.equal(servers.request(1).count, 7);
  servers.request(1).grant();
  await settled();
  assert.equal(ids.buffered, 10);
});

void test("a discard drops ids in memory and on their way, and requests none", async () => {
  const { servers, ids } = open({ buffer: [10, 10] });
  const first = ids.next();
  await settled();
  servers.request(0).grant();
  await first;
  await ids.nextMany(6);
  await settled();
  ids.discardBuffered();
  assert.equal(ids.buffered, 0);
  assert.equal(servers.request(1).signal.aborted, true);
  servers.request(1).grant();
  await settled();
  assert.equal(ids.buffered, 0);
  assert.equal(servers.requests.length, 2);
  const call = ids.next();
  await settled();
  servers.request(2).grant();
  assert.equal(await call, "18");
});

void test("a discard ends the retries of a request in the background", async () => {
  const { clock, servers, ids } = open();
  assert.equal(ids.tryNext(), null);
  await settled();
  servers.request(0).fail({});
  await settled();
  ids.discardBuffered();
  await clock.advance(60_000);
  assert.equal(servers.requests.length, 1);
  const call = ids.next();
  await settled();
  servers.request(1).grant();
  assert.equal(await call, "1");
});

// Goal: if every server asks for a later retry, calls that have less time fail at once, and calls that came later wait.
void test("calls that came later wait for Retry-After", async () => {
  const { clock, servers, ids } = open({ buffer: [0, 0] });
  const first = assert.rejects(ids.next(), { kind: "Unavailable", retryAfter: 4000 });
  await settled();
  await clock.advance(1500);
  const later = ids.next();
  servers.request(0).fail({ retryAfter: 4000 });
  await first;
  await clock.advance(3999);
  assert.equal(servers.requests.length, 1);
  await clock.advance(1);
  servers.request(1).grant();
  assert.equal(await later, "1");
});

void test("a discard takes the ids that a waiting call has got", async () => {
  const { servers, ids } = open({ buffer: [0, 0] });
  const call = ids.nextMany(4);
  await settled();
  servers.request(0).fail({ retry: "fewer" });
  await settled();
  servers.request(1).grant();
  await settled();
  ids.discardBuffered();
  for (let answer = 0; answer < 3; answer++) {
    servers.request(-1).grant();
    await settled();
  }
  const got = await call;
  assert.ok(got.length === 4 && !got.includes("1") && !got.includes("2"), got.join());
});

void test("the end of the client is an error of each call, and drops what is on its way", async () => {
  const { clock, servers, source, ids } = open();
  const calls = [ids.next(), ids.nextMany(3)].map((call) => assert.rejects(call, isKind("Closed")));
  await settled();
  source.stop(() => closed("orders"));
  await Promise.all(calls);
  servers.request(0).grant();
  await settled();
  assert.equal(ids.buffered, 0);
  await assert.rejects(ids.next(), isKind("Closed"));
  await assert.rejects(ids.nextMany(2), isKind("Closed"));
  assert.throws(() => ids.tryNext(), isKind("Closed"));
  assert.equal(clock.timers, 0);
});

void test("a count is 1 to 1,000,000", async () => {
  const { servers, ids } = open();
  for (const count of [0, -1, 1_000_001, 1.5, NaN, Infinity, "3" as unknown as number]) {
    await assert.rejects(ids.nextMany(count), isKind("InvalidCount"));
  }
  await settled();
  assert.equal(servers.requests.length, 0);
});

// Goal: calls of all sizes that collide, leave and fail never get an id twice, and each call gets as many as it asked for.
void test("calls that collide get each id once", async () => {
  const { clock, servers, ids } = open({ buffer: [0, 200] });
  const got: string[] = [];
  const calls: Promise<void>[] = [];
  let state = 1;
  const random = (below: number) => (state = (state * 48271) % 2147483647) % below;
  for (let step = 0; step < 4000; step++) {
    const controller = new AbortController();
    const { signal } = controller;
    const take = (many: string[]) => void got.push(...many);
    const ignore = () => undefined;
    switch (random(6)) {
      case 0:
        calls.push(
          ids.next({ signal }).then((id) => {
            take([id]);
          }, ignore),
        );
        break;
      case 1: {
        const count = 1 + random(40);
        calls.push(
          ids.nextMany(count, { signal }).then((many) => {
            assert.equal(many.length, count);
            take(many);
          }, ignore),
        );
        break;
      }
      case 2:
        take([ids.tryNext()].filter((id) => id !== null));
        break;
      case 3:
        await settled();
        servers.requests.at(-1)?.grant();
        break;
      case 4:
        servers.requests.at(-1)?.fail(random(3) === 0 ? { retry: "never" } : {});
        break;
      default:
        await clock.advance(random(30));
    }
    if (random(4) === 0) {
      controller.abort();
    }
  }
  while (calls.length > 0 && clock.timers > 0) {
    servers.requests.at(-1)?.grant();
    await clock.advance(20);
  }
  await Promise.all(calls);
  assert.ok(got.length > 3000, String(got.length));
  assert.equal(new Set(got).size, got.length);
});

// Goal: a refill that nobody waits for ends when it fails. Otherwise the loop would run without a pause until Retry-After, and block
// the process; or send requests to servers that are down without a call.
void test("a refill in the background ends with its failure, and the next draw starts another one", async () => {
  for (const retryAfter of [60_000, undefined]) {
    const { clock, servers, ids } = open({ buffer: [16, 16] });
    const first = ids.next();
    await settled();
    servers.request(0).grant();
    await first;
    while (servers.requests.length < 2) {
      await ids.next();
      await settled();
    }
    servers.request(1).fail({ retryAfter });
    for (let n = 2; clock.timers > 0; n++) {
      await clock.advance(1000);
      if (n < servers.requests.length) {
        servers.request(n).fail({});
      }
    }
    const { length } = servers.requests;
    await clock.advance(60_000);
    assert.equal(servers.requests.length, length);
    await ids.next();
    await settled();
    assert.equal(servers.requests.length, length + 1);
  }
});

void test("ids that are too old when they come start no refill", async () => {
  const { clock, servers, ids } = open({ maxAge: 100, buffer: [16, 16] });
  const first = ids.next();
  await clock.advance(200);
  servers.request(0).grant();
  assert.equal(await first, "1");
  await clock.advance(10_000);
  assert.equal(servers.requests.length, 1);
  assert.equal(ids.buffered, 0);
});

void test("a discarded request ends when the last call that waits leaves", async () => {
  const { clock, servers, ids } = open();
  const controller = new AbortController();
  const call = ids.next({ signal: controller.signal });
  await settled();
  ids.discardBuffered();
  controller.abort();
  await assert.rejects(call, { name: "AbortError" });
  await settled();
  assert.deepEqual([servers.requests.length, servers.request(0).signal.aborted, clock.timers], [1, true, 0]);
});

void test("many calls may share a signal", async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on("warning", note);
  const { servers, ids } = open();
  const { signal } = new AbortController();
  const calls = Array.from({ length: 20 }, () => ids.next({ signal }));
  await settled();
  servers.request(0).grant();
  await Promise.all(calls);
  await settled();
  process.off("warning", note);
  assert.deepEqual(warnings, []);
});
