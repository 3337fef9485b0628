import { type Instant, isOver } from "./clock.js";
import type { Span } from "./span.js";

/** A call that waits for ids. */
export class Waiter {
  /** How many ids the call still needs. */
  missing: number;
  /** When the call ends without ids, of the monotonic clock. */
  readonly deadline: number;
  #got: Span[];
  /**
   * Ids that became too old while the call waited were dropped. Only once, because a call whose answers take longer than the maximum
   * age would never end.
   */
  #isRenewed = false;
  readonly #resolve: (spans: readonly Span[]) => void;
  readonly #reject: (reason: unknown) => void;
  readonly #end: () => void;

  /** @param end - is called once, at the end of the wait */
  constructor(
    missing: number,
    got: Span[],
    deadline: number,
    resolve: (spans: readonly Span[]) => void,
    reject: (reason: unknown) => void,
    end: () => void,
  ) {
    this.missing = missing;
    this.#got = got;
    this.deadline = deadline;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#end = end;
  }

  /** Takes ids of a new answer. Returns whether the call has all of its ids, and so ends. */
  take(span: Span, now: Instant): boolean {
    // Ids of this answer are used however long it took, because the call had to wait for them.
    this.dropOld(now);
    const part = span.split(this.missing);
    this.missing -= part.left;
    this.#got.push(part);
    if (this.missing > 0) {
      return false;
    }
    this.#end();
    this.#resolve(this.#got);
    return true;
  }

  reject(reason: unknown): void {
    this.#end();
    this.#reject(reason);
  }

  /** Drops ids of earlier answers that became too old. */
  dropOld(now: Instant): void {
    if (this.#isRenewed) {
      return;
    }
    const young = this.#got.filter((span) => !isOver(span.until, now));
    this.#isRenewed = young.length < this.#got.length;
    this.#keep(young);
  }

  dropAll(): void {
    this.#keep([]);
  }

  #keep(spans: Span[]): void {
    const left = (ids: number, span: Span) => ids + span.left;
    this.missing += this.#got.reduce(left, 0) - spans.reduce(left, 0);
    this.#got = spans;
  }
}
