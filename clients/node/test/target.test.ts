import assert from "node:assert/strict";
import test from "node:test";

import { MAX_TEXTS, Target } from "../src/target.js";

/** Adapts a target to a steady rate: each time, half of it was used. */
function steady(target: Target, perSecond: number, requests: number): void {
  let now = 0;
  let drawn = 0;
  for (let n = 0; n < requests; n++) {
    target.adapt(now, drawn, false);
    const used = Math.max(Math.floor(target.size / 2), 1);
    now += (used * 1000) / perSecond;
    drawn += used;
  }
}

void test("steady use is kept for half the age", () => {
  for (const [perSecond, maxAge, size] of [
    [2000, 1000, 1000],
    [2000, 100, 100],
    [500, 60_000, 500],
    [10, 1000, 5],
    [1e9, Infinity, 1_000_000],
  ] as const) {
    const target = new Target([0, 1_000_000], maxAge);
    steady(target, perSecond, 50);
    assert.ok(Math.abs(target.size - size) <= 1, `${String(target.size)}: expected ${String(size)}`);
  }
});

void test("a burst is not taken for a rate", () => {
  for (const maxAge of [1, 1000, Infinity]) {
    const target = new Target([0, 1_000_000], maxAge);
    target.adapt(0, 0, true);
    target.adapt(0.01, 100, true);
    assert.equal(target.size, 1600);
  }
});

void test("after a rest only the use counts", () => {
  const target = new Target([0, 1_000_000], 1000);
  target.adapt(0, 0, true);
  target.adapt(1, 1_000_000, true);
  target.adapt(500, 1_000_000, false);
  assert.equal(target.size, 500_000);
  target.adapt(1000, 1_000_030, true);
  assert.deepEqual([target.size, target.request(1, 0)], [30, 31]);
});

void test("no more texts are kept than one answer has", () => {
  const target = new Target([0, 1_000_000], Infinity, MAX_TEXTS);
  steady(target, 1e9, 50);
  assert.deepEqual([target.size, target.request(500_000, 0)], [100_000, 100_000]);
  target.fitted();
  assert.equal(target.request(500_000, 0), 100_000);
  assert.equal(new Target([500_000, 500_000], 1000, MAX_TEXTS).size, 100_000);
});

void test("rare use keeps nothing", () => {
  const target = new Target([0, 1_000_000], 1000);
  for (let minute = 0; minute < 10; minute++) {
    target.adapt(minute * 60_000, minute, true);
  }
  assert.deepEqual([target.request(1, 0), target.low], [1, 0]);
});

void test("a buffer that runs dry grows, but not because servers fail", () => {
  const target = new Target([0, 1_000_000], 1000);
  for (const [request, drawn] of [0, 16, 48, 112].entries()) {
    target.adapt(400 * request, drawn, true);
  }
  assert.equal(target.size, 128);
  target.adapt(1201, 112, true);
  assert.equal(target.size, 64);
});

void test("the size stays within the buffer", () => {
  const none = new Target([0, 0], 1000);
  steady(none, 1000, 3);
  assert.deepEqual([none.request(1, 0), none.request(500, 0), none.low], [1, 500, 0]);
  const fixed = new Target([50, 50], 1000);
  steady(fixed, 1_000_000, 9);
  assert.deepEqual([fixed.request(1, 0), fixed.request(0, 49), fixed.low], [51, 1, 25]);
});

void test("a slow layout is asked for fewer ids", () => {
  const target = new Target([0, 1_000_000], 1000);
  const request = () => target.request(Number.MAX_SAFE_INTEGER, 0);
  assert.equal(request(), 1_000_000);
  target.tooMany(1_000_000);
  target.tooMany(250_000);
  assert.equal(request(), 62_500);
  target.fitted();
  assert.equal(request(), 125_000);
  target.tooMany(1);
  assert.equal(request(), 1);
});
