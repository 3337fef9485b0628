import assert from "node:assert/strict";
import test from "node:test";

import { readAnswer } from "../src/answer.js";

const until = { mono: Infinity, wall: Infinity };

function read(body: string | Uint8Array, count: number, isText = false): string[] | undefined {
  const spans = readAnswer(typeof body === "string" ? Buffer.from(body) : body, isText, count, until);
  if (typeof spans === "string") {
    assert.notEqual(spans, "");
    return undefined;
  }
  return spans.flatMap((span) => Array.from({ length: span.left }, () => span.shift()));
}

const ranges = (...all: unknown[]) => JSON.stringify({ ranges: all });

void test("ranges are read in their order", () => {
  const many = { first: "9007199254740993", count: 3, step: "1" };
  const last = { first: "9223372036854775807", count: 1, step: "18446744073709551615" };
  assert.deepEqual(read(ranges(many, last), 4), [
    "9007199254740993",
    "9007199254740994",
    "9007199254740995",
    "9223372036854775807",
  ]);
  assert.deepEqual(
    read(` { "until": [7, {"ranges": "}]"}], "ranges": [ {"count": 2, "x": "\\\\", "step": "4", "first": "0"} ] } `, 2),
    ["0", "4"],
  );
  assert.deepEqual(read(ranges({ first: "5", count: 1, step: "0" }), 1), ["5"]);
  const longest = readAnswer(Buffer.from(ranges({ first: "1", count: 2 ** 24, step: "1" })), false, 2 ** 24, until);
  assert.ok(typeof longest !== "string" && longest[0]?.left === 2 ** 24);
});

void test("unknown members are ignored", () => {
  const body = String.raw`{"x":"\\\"ranges\\\":{","x":1,"ranges":[{"first":"5","more":{"first":"6","count":[{}]},"count":1,"step":"1"}],"x":{"ranges":[]}}`;
  assert.deepEqual(read(body, 1), ["5"]);
});

void test("an invalid range makes the answer invalid", () => {
  const good = { first: "5", count: 1, step: "1" };
  for (const [body, count] of [
    [ranges(good), 2],
    [ranges(good, good), 1],
    [ranges({ first: "5", count: 2 ** 24 + 1, step: "1" }), 2 ** 24 + 1],
    [ranges({ first: "9223372036854775806", count: 3, step: "1" }), 3],
    [ranges({ first: "9223372036854775808", count: 1, step: "1" }), 1],
    [ranges({ first: "1", count: 3, step: "9223372036854775807" }), 3],
    [ranges({ first: "5", count: 2, step: "0" }), 2],
    [ranges({ first: "5", count: 2, step: "-1" }), 2],
    [ranges({ first: "5\n", count: 1, step: "1" }), 1],
    [ranges({ first: "", count: 1, step: "1" }), 1],
    [ranges({ first: "0x5", count: 1, step: "1" }), 1],
    [ranges({ first: "5", count: 1.5, step: "1" }), 1.5],
    [ranges({ first: "5", count: 0, step: "1" }, good), 1],
    [ranges({ first: "5", count: -1, step: "1" }, { first: "5", count: 2, step: "1" }), 1],
    [ranges({ first: "5", count: "1", step: "1" }), 1],
    [ranges({ first: "5", count: 1 }), 1],
    [ranges({ first: "9".repeat(100_000), count: 1, step: "1" }), 1],
    [ranges(5), 1],
    [ranges(null), 1],
    ['{"ranges":null}', 1],
    ['{"ranges":{"0":{"first":"5","count":1,"step":"1"},"length":1}}', 1],
    ['{"__proto__":{"ranges":[{"first":"5","count":1,"step":"1"}]}}', 1],
    ['{"ranges":[{"first":"5","count":1,"step":"1"}],"ranges":[{"first":"6","count":1,"step":"1"}]}', 1],
    ['{"ranges":[{"first":"5","first":"6","count":1,"step":"1"}]}', 1],
    ['{"ranges":[{"first":"5","\\u0066irst" : "6","count":1,"step":"1"}]}', 1],
    ["[]", 0],
    ["5", 1],
    ["", 1],
    [`${ranges(good)}{}`, 1],
  ] as const) {
    assert.equal(read(body, count), undefined, body.slice(0, 100));
  }
});

void test("texts are read as they are", () => {
  assert.deepEqual(read('{"ids":["A-1","\\u00c4-2"]}', 2, true), ["A-1", "Ä-2"]);
  for (const body of [
    '{"ids":["A"]}',
    '{"ids":["A","B","C"]}',
    '{"ids":["A",""]}',
    '{"ids":["A","\\u0041"]}',
    '{"ids":["A",5]}',
    '{"ids":["A","\\ud800"]}',
    "{}",
    "",
  ]) {
    assert.equal(read(body, 2, true), undefined, body);
  }
  assert.equal(read('{"ids":["A"],"ids":["B"]}', 1, true), undefined);
  // Two texts that differ in invalid bytes would become one.
  const invalid = Buffer.concat([Buffer.from('{"ids":["A'), Buffer.from([0xff]), Buffer.from('"]}')]);
  assert.equal(read(invalid, 1, true), undefined);
});
