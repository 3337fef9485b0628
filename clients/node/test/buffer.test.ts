import assert from "node:assert/strict";
import test from "node:test";

import { IdBuffer } from "../src/buffer.js";
import { instant, plus } from "../src/clock.js";
import { Numbers, type Span } from "../src/span.js";
import { TestClock } from "./test_clock.js";

function fill(buffer: IdBuffer, clock: TestClock, first: bigint, count: number, maxAge: number): void {
  buffer.add(new Numbers(first, 1n, count, plus(instant(clock), maxAge)));
}

const draw = (buffer: IdBuffer) => buffer.draw()?.shift();

void test("ids of several ranges come out in order, and each once", () => {
  const clock = new TestClock();
  const buffer = new IdBuffer(clock, Infinity);
  fill(buffer, clock, 500n, 2, Infinity);
  fill(buffer, clock, 100n, 3, Infinity);
  assert.equal(buffer.left, 5);
  assert.equal(draw(buffer), "500");
  const parts: Span[] = [];
  assert.equal(buffer.drawMany(3, parts), 0);
  assert.deepEqual(
    parts.map((part) => [part.left, part.shift()]),
    [
      [1, "501"],
      [2, "100"],
    ],
  );
  assert.equal(draw(buffer), "102");
  assert.equal(draw(buffer), undefined);
  assert.equal(buffer.drawMany(2, parts), 2);
  fill(buffer, clock, 7n, 1, Infinity);
  assert.equal(draw(buffer), "7");
  assert.deepEqual([buffer.left, buffer.drawn], [0, 6]);
});

void test("the buffer is low below its low mark", () => {
  const clock = new TestClock();
  const buffer = new IdBuffer(clock, Infinity);
  fill(buffer, clock, 1n, 4, Infinity);
  buffer.low = 3;
  draw(buffer);
  assert.equal(buffer.isLow, false);
  draw(buffer);
  assert.equal(buffer.isLow, true);
});

void test("ids that reach the maximum age are dropped, those of later answers stay", async () => {
  const clock = new TestClock();
  const buffer = new IdBuffer(clock, 100);
  fill(buffer, clock, 1n, 5, 100);
  await clock.advance(60);
  fill(buffer, clock, 50n, 5, 100);
  assert.equal(draw(buffer), "1");
  await clock.advance(39);
  assert.equal(draw(buffer), "2");
  await clock.advance(1);
  assert.equal(draw(buffer), "50");
  assert.deepEqual([buffer.left, buffer.drawn], [4, 3]);
  await clock.advance(60);
  assert.equal(buffer.left, 0);
  assert.equal(draw(buffer), undefined);
  // Also if the buffer was empty when the ids came.
  fill(buffer, clock, 90n, 5, 100);
  await clock.advance(100);
  assert.equal(draw(buffer), undefined);
});

// The monotonic clock stops while a machine is suspended.
void test("suspended time counts", () => {
  const clock = new TestClock();
  const buffer = new IdBuffer(clock, 100);
  fill(buffer, clock, 1n, 5, 100);
  assert.equal(draw(buffer), "1");
  clock.setWall(100);
  assert.equal(draw(buffer), undefined);
});

void test("ids become too old while the wall clock is set back again and again", async () => {
  const clock = new TestClock();
  const buffer = new IdBuffer(clock, 100);
  fill(buffer, clock, 1n, 500, 100);
  let drawn = 0;
  for (; drawn < 500 && draw(buffer) !== undefined; drawn++) {
    await clock.advance(4);
    clock.setWall(drawn % 3 === 0 ? -4000 : -4);
  }
  assert.ok(drawn >= 24 && drawn <= 29, `${String(drawn)} draws, one each 4 ms`);
});
