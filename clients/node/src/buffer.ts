import { type Clock, instant, isOver } from "./clock.js";
import { Queue } from "./queue.js";
import type { Span } from "./span.js";

/** How long a look at both clocks holds, in ms, unless the wall clock is set back. */
const LOOK_HOLDS = 10;

/** Keeps the ids of a namespace in memory. */
export class IdBuffer {
  /** The number of ids below which the buffer needs a refill. */
  low = 0;
  readonly #clock: Clock;
  readonly #ages: boolean;
  #current: Span | undefined;
  /** The spans after the current one. */
  readonly #stock = new Queue<Span>();
  #left = 0;
  #drawn = 0;
  /** The current ids are young while the wall clock is in here. */
  #youngFrom = 0;
  #youngUntil = 0;

  constructor(clock: Clock, maxAge: number) {
    this.#clock = clock;
    this.#ages = maxAge !== Infinity;
  }

  /** The number of ids left. */
  get left(): number {
    this.#advance();
    return this.#left;
  }

  /** The number of ids drawn from memory so far. */
  get drawn(): number {
    return this.#drawn;
  }

  /** Whether so few ids are left that the buffer needs a refill. */
  get isLow(): boolean {
    return this.#left < this.low;
  }

  /** Draws one id: the caller has to shift it out of the span. `undefined` if there is none. */
  draw(): Span | undefined {
    let span = this.#current;
    if (span === undefined || span.left === 0 || (this.#ages && !this.#isYoung())) {
      if ((span = this.#advance()) === undefined) {
        return undefined;
      }
    }
    this.#left--;
    this.#drawn++;
    return span;
  }

  /** Draws up to `count` ids into `spans`, and returns how many are missing. */
  drawMany(count: number, spans: Span[]): number {
    let missing = count;
    for (let span; missing > 0 && (span = this.#advance()) !== undefined; ) {
      const part = span.split(missing);
      missing -= part.left;
      this.#left -= part.left;
      this.#drawn += part.left;
      spans.push(part);
    }
    return missing;
  }

  /** Adds ids behind all others. */
  add(span: Span): void {
    this.#stock.push(span);
    this.#left += span.left;
  }

  /** Drops every id. */
  clear(): void {
    this.#current = undefined;
    this.#stock.clear();
    this.#left = 0;
  }

  /**
   * Returns whether the current ids are young. A reading of a clock takes longer than the rest of a draw, so this reads one clock
   * while the last look at both holds.
   */
  #isYoung(): boolean {
    const wall = this.#clock.wall();
    return this.#youngFrom <= wall && wall < this.#youngUntil;
  }

  /** Returns the first span with young ids, which becomes the current one. Drops the spans before it. */
  #advance(): Span | undefined {
    const now = this.#ages ? instant(this.#clock) : undefined;
    let span = this.#current ?? this.#stock.shift();
    while (span !== undefined && (span.left === 0 || (now !== undefined && isOver(span.until, now)))) {
      this.#left -= span.left;
      span = this.#stock.shift();
    }
    this.#current = span;
    if (span !== undefined && now !== undefined) {
      const rest = Math.min(span.until.mono - now.mono, span.until.wall - now.wall);
      this.#youngFrom = now.wall;
      this.#youngUntil = now.wall + Math.min(rest, LOOK_HOLDS);
    }
    return span;
  }
}
