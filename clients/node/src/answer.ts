import type { Instant } from "./clock.js";
import { hasRepeatedMember } from "./repeated.js";
import { Numbers, type Span, TextList } from "./span.js";

/** The largest id. */
const MAX_ID = 2n ** 63n - 1n;
/** The maximum number of ids in a range. */
const LONGEST_RANGE = 2 ** 24;
const MEMBERS: ReadonlySet<string> = new Set(["ranges", "first", "count", "step", "ids"]);
/** Digits of a 64-bit number. The limit keeps a hostile server from making the client read a number of many MB. */
const DIGITS = /^[0-9]{1,100}$/;

/** An answer without these ids is invalid; the message says why. */
class InvalidAnswer extends Error {}

/** Reads an answer that must have exactly `count` ids, or returns why it is invalid. One invalid range makes all of it invalid. */
export function readAnswer(body: Uint8Array, isText: boolean, count: number, until: Instant): Span[] | string {
  try {
    // Two texts that differ in invalid bytes would become the same text.
    const json = new TextDecoder("utf-8", { fatal: true }).decode(body);
    const answer: unknown = JSON.parse(json);
    if (hasRepeatedMember(json, MEMBERS)) {
      throw new InvalidAnswer("a member occurs twice");
    }
    return isText ? readTexts(answer, count, until) : readRanges(answer, count, until);
  } catch (thrown) {
    // The texts of other errors quote the answer, which may repeat the token.
    return thrown instanceof InvalidAnswer ? thrown.message : "it is not JSON in UTF-8";
  }
}

/** Reads `{"ranges": [{"first": "5", "count": 3, "step": "1"}]}`. */
function readRanges(answer: unknown, count: number, until: Instant): Span[] {
  const ranges = member(answer, "ranges");
  if (!Array.isArray(ranges)) {
    throw new InvalidAnswer("`ranges`: expected a list");
  }
  const spans = ranges.map((range, index) => readRange(range, index, until));
  const sum = spans.reduce((ids, span) => ids + span.left, 0);
  if (sum !== count) {
    throw new InvalidAnswer(`${String(sum)} ids: expected ${String(count)}`);
  }
  return spans;
}

function readRange(range: unknown, index: number, until: Instant): Numbers {
  const first = numberOf(member(range, "first"));
  const step = numberOf(member(range, "step"));
  const count = member(range, "count");
  const isCount = typeof count === "number" && Number.isInteger(count) && count >= 1 && count <= LONGEST_RANGE;
  if (first === undefined || step === undefined || !isCount || first > MAX_ID) {
    throw invalidRange(index);
  }
  if (count === 1) {
    return new Numbers(first, 0n, 1, until);
  }
  if (step < 1n || first + BigInt(count - 1) * step > MAX_ID) {
    throw invalidRange(index);
  }
  return new Numbers(first, step, count, until);
}

function invalidRange(index: number): InvalidAnswer {
  return new InvalidAnswer(`range ${String(index + 1)}: expected ids from 0 to 2^63 - 1`);
}

/** Reads `{"ids": ["A-7", "A-8"]}`. */
function readTexts(answer: unknown, count: number, until: Instant): Span[] {
  const ids = member(answer, "ids");
  if (!Array.isArray(ids) || ids.length !== count || !ids.every(isTextId)) {
    throw new InvalidAnswer(`\`ids\`: expected ${String(count)} texts`);
  }
  if (new Set(ids).size !== count) {
    throw new InvalidAnswer("an id occurs twice");
  }
  return [new TextList(ids as string[], until)];
}

function isTextId(id: unknown): boolean {
  // Half of a surrogate pair is no character: in UTF-8, two ids could become one.
  return typeof id === "string" && id !== "" && !/\p{Surrogate}/u.test(id);
}

function member(object: unknown, name: string): unknown {
  if (typeof object !== "object" || object === null || !Object.hasOwn(object, name)) {
    throw new InvalidAnswer(`no \`${name}\``);
  }
  return (object as Record<string, unknown>)[name];
}

/** Returns the number of a text of ASCII digits. */
function numberOf(text: unknown): bigint | undefined {
  return typeof text === "string" && DIGITS.test(text) ? BigInt(text) : undefined;
}
