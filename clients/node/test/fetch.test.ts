import assert from "node:assert/strict";
import test from "node:test";

import { Fetch, type Fetched } from "../src/fetch.js";
import { NamespaceState } from "../src/namespace_state.js";
import { settled, TestClock } from "./test_clock.js";
import { TestServers } from "./test_servers.js";

interface Setting {
  readonly servers?: string[];
  readonly timeout?: number;
  readonly hedgeAfter?: number;
  readonly count?: number;
}

/** Begins a fetch of ids. */
function begin({ servers: names = ["a", "b"], count = 3, ...options }: Setting) {
  const clock = new TestClock();
  const servers = new TestServers(names, clock, options);
  const state = new NamespaceState("orders", false, 1000, names.length);
  const first = new Fetch(servers.shared, state, count);
  const fetch = () => new Fetch(servers.shared, state, count).run();
  return { clock, servers, fetch, first, fetched: first.run(), counts: servers.shared.counts };
}

/** Returns the first id of a fetch. */
async function firstId(fetched: Promise<Fetched>): Promise<string | undefined> {
  const result = await fetched;
  return result.kind === "filled" ? result.spans[0]?.shift() : result.kind;
}

// Goal: the second server gets the request exactly after hedgeAfter, the first valid answer wins, and the ids of the other one are
// used nowhere.
void test("a slow server is hedged", async () => {
  for (const winner of [0, 1]) {
    const { clock, servers, fetch, fetched, counts } = begin({ hedgeAfter: 50 });
    await clock.advance(49);
    assert.equal(servers.requests.length, 1);
    await clock.advance(1);
    assert.deepEqual(
      servers.requests.map(({ server }) => server),
      ["a", "b"],
    );
    servers.request(winner).grant();
    assert.equal(await firstId(fetched), "1");
    servers.request(1 - winner).grant();
    assert.equal(servers.request(1 - winner).signal.aborted, true);
    assert.equal(servers.request(winner).signal.aborted, false);
    assert.deepEqual({ ...counts }, { requests: 2, hedged: 1, failed: 1 });
    assert.equal(clock.timers, 0);

    const next = fetch();
    await settled();
    // The loser had the request for hedgeAfter if it was the first one: then it is tried last.
    assert.equal(servers.request(-1).server, winner === 0 ? "a" : "b");
    servers.request(-1).grant();
    assert.equal(await firstId(next), "7");
  }
});

void test("a failure sends the request to the next server at once, and to the same one after a pause", async () => {
  const { clock, servers, fetched, counts } = begin({ hedgeAfter: 50 });
  servers.request(0).fail({});
  await settled();
  assert.equal(servers.request(1).server, "b");
  servers.request(1).fail({});
  await clock.advance(19);
  assert.equal(servers.requests.length, 2);
  await clock.advance(1);
  assert.equal(servers.requests.length, 3);
  servers.request(2).grant();
  assert.equal(await firstId(fetched), "1");
  assert.deepEqual({ ...counts }, { requests: 3, hedged: 0, failed: 2 });
});

void test("a server has half of the timeout, 2 s at most, and 80 % of it to make the ids", async () => {
  for (const [timeout, limit] of [
    [1000, 500],
    [60_000, 2000],
  ] as const) {
    const { clock, servers, counts } = begin({ timeout });
    assert.equal(servers.request(0).wait, limit * 0.8);
    assert.equal(servers.request(0).until.mono, clock.mono() + 1000);
    await clock.advance(limit - 1);
    assert.deepEqual([servers.requests.length, servers.request(0).signal.aborted], [1, false]);
    await clock.advance(1);
    assert.deepEqual([servers.requests.length, servers.request(0).signal.aborted], [2, true]);
    assert.equal(counts.failed, 1);
  }
});

// Goal: an answer that comes after its time is dropped, also while the call still waits for another server.
void test("a late answer is dropped", async () => {
  const { clock, servers, fetched } = begin({ timeout: 1000 });
  await clock.advance(500);
  servers.request(0).grant();
  await settled();
  servers.request(1).grant();
  assert.equal(await firstId(fetched), "4");
});

void test("a fetch ends at its deadline, with what failed last", async () => {
  const { clock, servers, fetched } = begin({ timeout: 1000 });
  servers.request(0).fail({ detail: "broken" });
  await clock.advance(999);
  assert.equal(servers.request(1).signal.aborted, true);
  await clock.advance(1);
  const result = await fetched;
  assert.ok(result.kind === "late" && /^no answer within \d+ ms$/.test(result.failure.detail), JSON.stringify(result));
  assert.equal(clock.timers, 0);
});

void test("a final error ends a fetch, and the request at another server", async () => {
  const { clock, servers, fetched } = begin({ hedgeAfter: 50 });
  await clock.advance(50);
  servers.request(1).fail({ kind: "Forbidden", retry: "never" });
  const result = await fetched;
  assert.ok(result.kind === "rejected" && result.failure.kind === "Forbidden");
  assert.equal(servers.request(0).signal.aborted, true);
  assert.equal(servers.requests.length, 2);
});

void test("a certificate or store is a final error if every server has another one", async () => {
  const { servers, fetched } = begin({});
  servers.request(0).fail({ kind: "InvalidCertificate", retry: "afterRepair" });
  await settled();
  servers.request(1).fail({ kind: "AnotherStore", retry: "afterRepair" });
  const result = await fetched;
  assert.ok(result.kind === "rejected" && result.failure.kind === "AnotherStore");
});

void test("ids of a second store are dropped", async () => {
  const { servers, fetch, fetched } = begin({});
  servers.request(0).grant("smst_1");
  assert.equal(await firstId(fetched), "1");
  const next = fetch();
  await settled();
  servers.request(-1).grant("smst_2");
  await settled();
  servers.request(-1).grant("smst_1");
  assert.equal(await firstId(next), "7");
  assert.equal(servers.shared.stores.store, "smst_1");
});

void test("a server that asks for a later retry than the deadline fails the call at once", async () => {
  const { servers, fetched } = begin({ servers: ["a"], count: 1 });
  servers.request(0).fail({ kind: "OverQuota", retryAfter: 60_000 });
  const result = await fetched;
  assert.ok(result.kind === "postponed" && result.failure.kind === "OverQuota" && result.failure.retryAfter === 60_000);
});

void test("a used-up quota is a reason to request fewer ids, unless another server has them", async () => {
  const alone = begin({ servers: ["a"] });
  alone.servers.request(0).fail({ kind: "OverQuota", retryAfter: 60_000 });
  assert.equal((await alone.fetched).kind, "tooMany");

  const both = begin({});
  both.servers.request(0).fail({ kind: "OverQuota", retryAfter: 60_000 });
  await settled();
  both.servers.request(1).grant();
  assert.equal(await firstId(both.fetched), "1");
  const next = both.fetch();
  await both.clock.advance(40_000);
  assert.deepEqual(both.servers.requests.map(({ server }) => server).slice(0, 3), ["a", "b", "b"]);
  assert.equal((await next).kind, "late");
});

void test("a fetch that is cancelled ends at once, in a round and in a pause", async () => {
  for (const isPause of [false, true]) {
    const { clock, servers, first, fetched, counts } = begin({ servers: ["a"], hedgeAfter: 50 });
    await clock.advance(60);
    if (isPause) {
      servers.request(0).fail({});
      await settled();
    }
    first.cancel();
    assert.equal((await fetched).kind, "cancelled");
    assert.equal(servers.requests.length, 1);
    assert.equal(servers.request(0).signal.aborted, !isPause);
    assert.deepEqual({ ...counts }, { requests: 1, hedged: 0, failed: 1 });
    assert.equal(clock.timers, 0);
  }
});
