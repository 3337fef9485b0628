/** The maximum number of ids in one request or call, the same as the server's. It is also that of ids in memory. */
export const MAX_COUNT = 1_000_000;
/** The maximum number of texts in one request, the same as the server's. It is also that of texts in memory. */
export const MAX_TEXTS = 100_000;
/** The target before the use is known. */
const FIRST_TARGET = 16;
/** The longest use that the buffer covers, in ms. */
const LONGEST_HORIZON = 1000;
/** The part of the horizon over which the use is measured at least: a shorter time says little about the rate. */
const SHORTEST_PART = 1 / 16;

/**
 * Decides how many ids to keep in memory: the use in half of the maximum age, the horizon. It grows immediately, so that a burst is
 * served from memory, but to 16 times the ids of the burst at most. It shrinks by half at most until it has covered a whole horizon,
 * so that the first call after a rest requests only what it needs.
 */
export class Target {
  readonly #min: number;
  readonly #max: number;
  readonly #horizon: number;
  #size: number;
  /** The server's maximum count of one request. */
  readonly #limit: number;
  /** The present maximum. It shrinks when no server returns that many. */
  #most: number;
  /** When ids were requested last, and how many had been drawn then. */
  #last: { readonly at: number; readonly drawn: number } | undefined;

  constructor([min, max]: readonly [number, number], maxAge: number, limit = MAX_COUNT) {
    this.#min = Math.min(min, limit);
    this.#max = Math.min(max, limit);
    this.#limit = limit;
    this.#most = limit;
    this.#horizon = Math.min(maxAge / 2, LONGEST_HORIZON);
    this.#size = this.#within(FIRST_TARGET);
  }

  /** The number of ids to keep. */
  get size(): number {
    return this.#size;
  }

  /** The number of ids below which the buffer is refilled. */
  get low(): number {
    return Math.floor(this.#size / 2);
  }

  /**
   * Adapts to the use.
   *
   * @param now - of a monotonic clock, in ms
   * @param drawn - the number of ids drawn so far
   * @param ranDry - whether callers wait
   */
  adapt(now: number, drawn: number, ranDry: boolean): void {
    if (this.#last !== undefined) {
      const since = Math.max(now - this.#last.at, this.#horizon * SHORTEST_PART);
      const isPart = since < this.#horizon;
      const used = drawn - this.#last.drawn;
      let size = Math.floor((used * this.#horizon) / since);
      // If nothing was drawn, callers wait because servers fail.
      if (isPart && ranDry && used > 0) {
        size = Math.max(size, 2 * this.#size);
      }
      this.#size = this.#within(isPart ? Math.max(size, Math.floor(this.#size / 2)) : size);
    }
    this.#last = { at: now, drawn };
  }

  /** Returns the number of ids to request: those that callers wait for, and what the buffer lacks. */
  request(wanted: number, left: number): number {
    const count = wanted + Math.max(this.#size - left, 0);
    return Math.max(Math.min(count, this.#most), 1);
  }

  /** Records that a server returned as many ids as requested. */
  fitted(): void {
    this.#most = Math.min(2 * this.#most, this.#limit);
  }

  /** Records that no server returns this many ids. */
  tooMany(requested: number): void {
    this.#most = Math.max(Math.floor(requested / 4), 1);
  }

  #within(size: number): number {
    return Math.max(Math.min(size, this.#max), this.#min);
  }
}
