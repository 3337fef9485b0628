import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { meaning, retryAfter } from "../src/meaning.js";

interface Row {
  readonly problem: string | null;
  readonly status: number;
  readonly kind: string;
  readonly retry: string;
  readonly concerns: string;
}

void test("errors mean what the server's table says", () => {
  const { errors } = JSON.parse(readFileSync("../errors.json", "utf8")) as { errors: Row[] };
  assert.ok(errors.length > 50);
  for (const { problem, status, kind, retry, concerns } of errors) {
    assert.deepEqual(
      meaning(status, problem ?? ""),
      { kind, retry, scope: concerns },
      `${String(status)} ${problem ?? ""}`,
    );
  }
});

void test("Retry-After is a number of seconds, or a date that counts from the answer's", () => {
  const noon = "Sun, 06 Nov 1994 12:00:00 GMT";
  for (const [text, date, expected] of [
    ["30", undefined, 30_000],
    [" 0 ", undefined, 0],
    ["61", undefined, 60_000],
    ["18446744073709551615", undefined, 60_000],
    ["", undefined, undefined],
    [undefined, undefined, undefined],
    ["soon", undefined, undefined],
    ["-3", undefined, undefined],
    ["1.5", undefined, undefined],
    ["Sun, 06 Nov 1994 12:00:40 GMT", noon, 40_000],
    ["Sunday, 06-Nov-94 12:00:40 GMT", noon, 40_000],
    ["Sun Nov  6 12:00:40 1994", noon, 40_000],
    ["Sun, 06 Nov 1994 11:00:00 GMT", noon, 0],
    ["Mon, 01 Jan 2300 00:00:00 GMT", noon, 60_000],
    // Without a date in the answer, it counts from now.
    [noon, undefined, 0],
  ] as const) {
    assert.equal(retryAfter(text, date), expected, text);
  }
});
