import assert from "node:assert/strict";
import test from "node:test";

import { Numbers, type Span, TextList } from "../src/span.js";

const until = { mono: Infinity, wall: Infinity };

function shiftAll(span: Span): string[] {
  return Array.from({ length: span.left }, () => span.shift());
}

// Goal: strings, bigints and parts of a range are the same ids, also where all digits change, for any first id and step.
// Method: compares with plain bigint arithmetic. The seed is fixed, so a failure repeats.
void test("numbers are those of bigint arithmetic", () => {
  let state = 7n;
  const random = (below: bigint) => (state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n) % below;
  const firsts = [0n, 1n, 998n, 999n, 1000n, 999_999n, 9007199254740991n, 2n ** 63n - 40_000_000n];
  const steps = [1n, 3n, 999n, 1000n, 1001n, 4096n, 123_456n];
  for (let n = 0; n < 300; n++) {
    firsts.push(random(2n ** 63n - 40_000_000n));
  }
  for (const first of firsts) {
    for (const step of steps) {
      const count = 1 + Number(random(300n));
      const expected = Array.from({ length: count }, (_, index) => first + BigInt(index) * step);
      assert.deepEqual(shiftAll(new Numbers(first, step, count, until)), expected.map(String));

      const mixed = new Numbers(first, step, count, until);
      const got: string[] = [];
      while (mixed.left > 0) {
        switch (random(3n)) {
          case 0n:
            got.push(mixed.shift());
            break;
          case 1n:
            got.push(String(mixed.shiftBigInt()));
            break;
          default:
            got.push(...shiftAll(mixed.split(Number(random(40n)))));
        }
      }
      assert.deepEqual(got, expected.map(String));
    }
  }
});

void test("the largest id is exact", () => {
  const last = new Numbers(2n ** 63n - 3n, 1n, 3, until);
  assert.deepEqual(shiftAll(last), ["9223372036854775805", "9223372036854775806", "9223372036854775807"]);
  assert.equal(last.left, 0);
});

void test("a split takes no more than is left, and keeps the age", () => {
  const spans: Span[] = [
    new Numbers(5n, 2n, 3, { mono: 7, wall: 8 }),
    new TextList(["5", "7", "9"], { mono: 7, wall: 8 }),
  ];
  for (const span of spans) {
    const part = span.split(2);
    assert.deepEqual(part.until, { mono: 7, wall: 8 });
    assert.deepEqual([part.left, span.left], [2, 1]);
    assert.deepEqual(shiftAll(part), ["5", "7"]);
    assert.deepEqual(shiftAll(span.split(9)), ["9"]);
    assert.equal(span.left, 0);
  }
});
