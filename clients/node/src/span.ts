import type { Instant } from "./clock.js";

/** Ids of one range of an answer, in order. Each is read once. */
export interface Span {
  /** How many ids are left. */
  readonly left: number;
  /** When the ids become too old to return. */
  readonly until: Instant;
  /** Removes the first id, and returns it as a string. There must be one. */
  shift(): string;
  /** Removes the first id, and returns it as a bigint. There must be one. */
  shiftBigInt(): bigint;
  /** Removes and returns the first ids, at most as many as are left. */
  split(count: number): Span;
}

/** The end of each id in decimal digits, alone or after other digits. */
const plain: readonly string[] = Array.from({ length: 1000 }, (_, end) => String(end));
const padded: readonly string[] = plain.map((digits) => digits.padStart(3, "0"));

/**
 * Numbers that increase by one step each.
 *
 * The string of a bigint takes longer than all else in a call. Here 1,000 ids in a row share the string of their first digits.
 */
export class Numbers implements Span {
  left: number;
  readonly until: Instant;
  readonly #step: bigint;
  /** The next id is `base + end`: a multiple of 1,000, and less than 1,000. */
  #base = 0n;
  #end = 0;
  #prefix = "";
  #ends = plain;
  /** The step, divided in the same way. */
  readonly #baseStep: bigint;
  readonly #endStep: number;
  /** From this end on, the base changes; 0 if it does with each step. */
  readonly #carryFrom: number;

  constructor(first: bigint, step: bigint, count: number, until: Instant) {
    this.left = count;
    this.until = until;
    this.#step = step;
    this.#endStep = Number(step % 1000n);
    this.#baseStep = step - BigInt(this.#endStep);
    this.#carryFrom = this.#baseStep === 0n ? 1000 : 0;
    this.#moveTo(first);
  }

  shift(): string {
    // There are 1,000 ends, and each is less.
    const id = this.#prefix + (this.#ends[this.#end] as string);
    this.#advance();
    return id;
  }

  shiftBigInt(): bigint {
    const id = this.#base + BigInt(this.#end);
    this.#advance();
    return id;
  }

  split(count: number): Numbers {
    const part = Math.min(count, this.left);
    const first = this.#base + BigInt(this.#end);
    this.left -= part;
    this.#moveTo(first + BigInt(part) * this.#step);
    return new Numbers(first, this.#step, part, this.until);
  }

  #advance(): void {
    this.left--;
    this.#end += this.#endStep;
    if (this.#end >= this.#carryFrom) {
      this.#moveTo(this.#base + this.#baseStep + BigInt(this.#end));
    }
  }

  #moveTo(id: bigint): void {
    this.#end = Number(id % 1000n);
    this.#base = id - BigInt(this.#end);
    this.#prefix = this.#base === 0n ? "" : String(this.#base / 1000n);
    this.#ends = this.#base === 0n ? plain : padded;
  }
}

/** Ids of a namespace with a text form. */
export class TextList implements Span {
  left: number;
  readonly until: Instant;
  readonly #texts: readonly string[];
  #next: number;

  constructor(texts: readonly string[], until: Instant, from = 0, count = texts.length) {
    this.#texts = texts;
    this.until = until;
    this.#next = from;
    this.left = count;
  }

  shift(): string {
    this.left--;
    return this.#texts[this.#next++] as string;
  }

  /** Only a handle of {@link Client.bigints} reads bigints, and it has no texts. */
  shiftBigInt(): bigint {
    throw new TypeError("texts are no bigints");
  }

  split(count: number): TextList {
    const part = Math.min(count, this.left);
    const first = this.#next;
    this.#next += part;
    this.left -= part;
    return new TextList(this.#texts, this.until, first, part);
  }
}
