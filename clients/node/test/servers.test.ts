import assert from "node:assert/strict";
import test from "node:test";

import { newHealth, ServerChoice } from "../src/servers.js";

function servers(count: number) {
  return { choice: new ServerChoice(count, () => 1), own: newHealth(count) };
}

void test("a server that failed is tried last for 100 ms, whether it or its namespace failed", () => {
  for (const scope of ["server", "namespace"] as const) {
    const { choice, own } = servers(3);
    assert.deepEqual(choice.order(own, 0), [0, 1, 2]);
    choice.failed(own, 0, scope, 0, 0);
    assert.deepEqual(choice.order(own, 0), [1, 2, 0]);
    choice.failed(own, 1, scope, 60, 0);
    assert.deepEqual(choice.order(own, 61), [2, 0, 1]);
    assert.deepEqual(choice.order(own, 161), [0, 1, 2]);
    choice.succeeded(own, 0);
    assert.deepEqual(choice.order(own, 61), [0, 2, 1]);
  }
});

void test("a server that keeps failing is left out longer", () => {
  for (const random of [0, 1]) {
    const choice = new ServerChoice(2, () => random);
    const own = newHealth(2);
    let longest = 100;
    for (let failures = 0; failures < 2000; failures++) {
      choice.failed(own, 0, "server", 0, 0);
      const leftOut = longest * (random === 0 ? 0.5 : 1);
      assert.deepEqual(choice.order(own, leftOut - 0.001), [1, 0]);
      assert.deepEqual(choice.order(own, leftOut), [0, 1]);
      longest = Math.min(2 * longest, 10_000);
    }
  }
});

void test("a server gets no request before its Retry-After; the later one of server and namespace counts", () => {
  const { choice, own } = servers(2);
  choice.failed(own, 0, "server", 0, 2000);
  choice.failed(own, 0, "namespace", 0, 1000);
  choice.failed(own, 1, "namespace", 0, 3000);
  assert.deepEqual(choice.order(own, 1999), []);
  assert.equal(choice.pause(own, 0, 1000), 1000);
  assert.equal(choice.closedFor(own, 500), 1500);
  assert.deepEqual(choice.order(own, 2000), [0]);
  assert.deepEqual(choice.order(own, 3000), [0, 1]);
  // Another namespace waits only for the server.
  assert.deepEqual(choice.order(newHealth(2), 0), [1]);
});

void test("pauses grow", () => {
  const { choice, own } = servers(2);
  let longest = 20;
  for (let round = 0; round < 2000; round++) {
    assert.equal(choice.pause(own, round, 0), longest);
    longest = Math.min(2 * longest, 1000);
  }
});

void test("hedges are a tenth of the requests", () => {
  const { choice } = servers(2);
  const hedges = (requests: number, isCounted: boolean) =>
    Array.from({ length: requests }, () => {
      if (isCounted) {
        choice.requested();
      }
      return choice.mayHedge();
    }).filter(Boolean).length;
  assert.equal(hedges(50, false), 10);
  assert.equal(hedges(1000, true), 100);
});

void test("a failure without Retry-After does not shorten an earlier one", () => {
  const choice = new ServerChoice(1, () => 1);
  const own = newHealth(1);
  choice.failed(own, 0, "server", 1000, 30_000);
  choice.failed(own, 0, "server", 1010, 0);
  assert.equal(choice.closedFor(own, 1010), 29_990);
});
