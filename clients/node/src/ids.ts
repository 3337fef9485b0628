import { invalidCount } from "./errors.js";
import type { Source } from "./source.js";
import type { Span } from "./span.js";
import { MAX_COUNT } from "./target.js";

export interface CallOptions {
  /** Ends the wait: the call rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** The ids of one namespace. All handles of a name share their ids. */
export interface Ids<T extends string | bigint> {
  /** The name of the namespace. */
  readonly name: string;

  /**
   * Returns the next id. It takes nanoseconds while ids are in memory, and waits for a server otherwise, up to the timeout.
   *
   * @throws SnowmintError whose `kind` says what to do
   */
  next(options?: CallOptions): Promise<T>;

  /**
   * Returns `count` ids, 1 to 1,000,000: first those in memory, the rest from the servers. Ids drawn before an error are lost.
   *
   * @throws SnowmintError as `next` does
   */
  nextMany(count: number, options?: CallOptions): Promise<T[]>;

  /**
   * Returns the next id, or `null` if none is in memory: then it starts a request in the background. It never waits. With a buffer of
   * 0 it never returns an id.
   *
   * @throws SnowmintError if the client is closed or the name is invalid
   */
  tryNext(): T | null;

  /** The number of ids in memory. */
  readonly buffered: number;

  /**
   * Drops the ids in memory and those on their way. Nothing is requested until the next call.
   *
   * Call it before a snapshot of the machine or process that may be started more than once: otherwise each copy returns the same
   * ids. No other call may be in progress.
   */
  discardBuffered(): void;
}

/** A handle that reads the ids of its source in one form. */
abstract class Handle<T extends string | bigint> implements Ids<T> {
  readonly #source: Source;

  constructor(source: Source) {
    this.#source = source;
  }

  get name(): string {
    return this.#source.name;
  }

  get buffered(): number {
    return this.#source.buffered;
  }

  /** The promise of an async function takes less time than `Promise.resolve`, and even less if the function awaits nothing itself. */
  async next(options?: CallOptions): Promise<T> {
    if (options?.signal?.aborted !== true) {
      const span = this.#source.draw();
      if (span !== undefined) {
        return this.shift(span);
      }
    }
    return this.#waitForOne(options);
  }

  async nextMany(count: number, options?: CallOptions): Promise<T[]> {
    if (!Number.isInteger(count) || count < 1 || count > MAX_COUNT) {
      throw invalidCount(this.name, count);
    }
    const ids: T[] = [];
    for (const span of await this.#source.take(count, options?.signal)) {
      while (span.left > 0) {
        ids.push(this.shift(span));
      }
    }
    return ids;
  }

  tryNext(): T | null {
    const span = this.#source.draw();
    if (span !== undefined) {
      return this.shift(span);
    }
    this.#source.noteEmpty();
    return null;
  }

  discardBuffered(): void {
    this.#source.discard();
  }

  /** Removes the first id of a span, and returns it. */
  protected abstract shift(span: Span): T;

  async #waitForOne(options: CallOptions | undefined): Promise<T> {
    const [span] = await this.#source.take(1, options?.signal);
    // A source returns as many ids as it was asked for.
    return this.shift(span as Span);
  }
}

export class StringIds extends Handle<string> {
  protected override shift(span: Span): string {
    return span.shift();
  }
}

export class BigIntIds extends Handle<bigint> {
  protected override shift(span: Span): bigint {
    return span.shiftBigInt();
  }
}
