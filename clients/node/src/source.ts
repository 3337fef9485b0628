import { setMaxListeners } from "node:events";

import { IdBuffer } from "./buffer.js";
import { type Clock, type Instant, instant, isOver } from "./clock.js";
import type { SnowmintError } from "./errors.js";
import { timedOut, toError } from "./failure.js";
import { Fetch, type Fetched } from "./fetch.js";
import { NamespaceState } from "./namespace_state.js";
import type { Shared } from "./round.js";
import type { Span } from "./span.js";
import { MAX_COUNT, MAX_TEXTS, Target } from "./target.js";
import { Waiter } from "./waiter.js";

/** How long after a final error ids are requested only for waiting callers, in ms. */
const AFTER_REJECTION = 1000;

/** What a source needs to know of its client. */
export interface SourceOptions {
  readonly shared: Shared;
  readonly maxAge: number;
  readonly buffer: readonly [min: number, max: number];
}

/**
 * The ids of one namespace: those in memory, the callers that wait for more, and the loop that requests them. The loop runs only
 * while there is something to request, and sends one request at a time.
 */
export class Source {
  readonly name: string;
  readonly #state: NamespaceState;
  readonly #shared: Shared;
  readonly #clock: Clock;
  readonly #buffer: IdBuffer;
  readonly #target: Target;
  readonly #keeps: boolean;
  /** In the order of their calls. While there are any, the buffer is empty. */
  readonly #waiters = new Set<Waiter>();
  /** A call that does not wait found no id. */
  #wasEmpty = false;
  /** How often the ids were discarded. Answers to requests of an earlier generation are dropped. */
  #generation = 0;
  /** The generation of the last call that found no id. Ids are requested ahead of calls only in this generation. */
  #drawnIn = 0;
  #rejectedAt = -Infinity;
  #isFilling = false;
  /** The generation of the last request. */
  #fetchedIn = 0;
  /** The request on its way. */
  #fetch: Fetch | undefined;
  /** Why no id is ever returned: the client is closed, or the name is invalid. */
  #stopped: (() => SnowmintError) | undefined;

  constructor(name: string, isText: boolean, { shared, maxAge, buffer }: SourceOptions) {
    this.name = name;
    this.#shared = shared;
    this.#clock = shared.clock;
    this.#state = new NamespaceState(name, isText, maxAge, shared.servers.length);
    this.#buffer = new IdBuffer(this.#clock, maxAge);
    this.#target = new Target(buffer, maxAge, isText ? MAX_TEXTS : MAX_COUNT);
    this.#keeps = buffer[1] > 0;
  }

  get buffered(): number {
    return this.#buffer.left;
  }

  /** Draws one id: the caller has to shift it out of the span. `undefined` if none is in memory. */
  draw(): Span | undefined {
    const span = this.#buffer.draw();
    if (span !== undefined && this.#buffer.isLow) {
      this.#startFilling();
    }
    return span;
  }

  /** Requests ids in the background, because a call that does not wait found none. */
  noteEmpty(): void {
    this.#throwIfStopped();
    if (this.#keeps) {
      this.#wasEmpty = true;
      this.#drawnIn = this.#generation;
      this.#startFilling();
    }
  }

  /** Returns `count` ids, and waits for those that are not in memory. */
  async take(count: number, signal: AbortSignal | undefined): Promise<readonly Span[]> {
    signal?.throwIfAborted();
    const got: Span[] = [];
    const missing = this.#buffer.drawMany(count, got);
    if (missing === 0) {
      if (this.#buffer.isLow) {
        this.#startFilling();
      }
      return got;
    }
    this.#throwIfStopped();
    return this.#wait(missing, got, signal);
  }

  /** Drops the ids in memory and those on their way. */
  discard(): void {
    this.#generation++;
    this.#wasEmpty = false;
    for (const waiter of this.#waiters) {
      waiter.dropAll();
    }
    this.#buffer.clear();
    if (this.#waiters.size === 0) {
      this.#fetch?.cancel();
    }
  }

  /** Makes each call an error, also those that wait. */
  stop(error: () => SnowmintError): void {
    this.#stopped ??= error;
    this.#buffer.clear();
    this.#reject(this.#stopped);
    this.#fetch?.cancel();
  }

  #throwIfStopped(): void {
    if (this.#stopped !== undefined) {
      throw this.#stopped();
    }
  }

  #wait(missing: number, got: Span[], signal: AbortSignal | undefined): Promise<readonly Span[]> {
    const { timeout } = this.#shared;
    return new Promise((resolve, reject) => {
      const leave = (reason: unknown) => {
        this.#waiters.delete(waiter);
        waiter.reject(reason);
        if (this.#waiters.size === 0 && this.#fetchedIn !== this.#generation) {
          // Only this call kept the retries of a discarded request going.
          this.#fetch?.cancel();
        }
      };
      const onAbort = () => {
        leave(signal?.reason);
      };
      // Only this timer keeps the process running while the call waits.
      const onTimeout = () => {
        leave(timedOut(this.name, timeout, this.#state.lastFailure));
      };
      const timer = this.#clock.after(timeout, onTimeout, true);
      const waiter = new Waiter(missing, got, this.#clock.mono() + timeout, resolve, reject, () => {
        timer.cancel();
        signal?.removeEventListener("abort", onAbort);
      });
      if (signal !== undefined) {
        allowManyListeners(signal);
        signal.addEventListener("abort", onAbort);
      }
      this.#waiters.add(waiter);
      this.#drawnIn = this.#generation;
      this.#startFilling();
    });
  }

  /** Returns an error to every waiting call. */
  #reject(error: () => SnowmintError): void {
    this.#rejectBefore(Infinity, error);
  }

  /** Starts the loop unless it runs. Before it ends, it looks for work again. */
  #startFilling(): void {
    if (!this.#isFilling && this.#stopped === undefined) {
      this.#isFilling = true;
      // Later, so that calls which begin together share a request.
      queueMicrotask(() => void this.#fill());
    }
  }

  /** Fills the buffer and serves the waiting calls, until nothing is to be requested. */
  async #fill(): Promise<void> {
    while (this.#isFilling) {
      const count = this.#nextCount();
      if (count === 0) {
        this.#isFilling = false;
        return;
      }
      const generation = this.#generation;
      this.#fetchedIn = generation;
      this.#fetch = new Fetch(this.#shared, this.#state, count);
      const fetched = await this.#fetch.run();
      this.#settle(count, generation, fetched);
      if (this.#waiters.size === 0 && this.#isInVain(fetched)) {
        // The next call starts another one. Otherwise this would go on without calls, or even without a pause.
        this.#isFilling = false;
        return;
      }
    }
  }

  /** Returns whether a fetch left no ids to keep, so that the next one would not either. */
  #isInVain(fetched: Fetched): boolean {
    return fetched.kind === "filled"
      ? fetched.spans.every(({ until }) => isOver(until, instant(this.#clock)))
      : fetched.kind === "postponed" || fetched.kind === "late";
  }

  /** Returns how many ids to request now. */
  #nextCount(): number {
    const now = instant(this.#clock);
    const wanted = this.#wanted(now);
    const left = this.#buffer.left;
    const isEmpty = left === 0 && this.#wasEmpty;
    if (left === 0) {
      this.#wasEmpty = false;
    }
    const isLow = this.#buffer.isLow && this.#drawnIn === this.#generation;
    const rests = now.mono - this.#rejectedAt < AFTER_REJECTION;
    if (this.#stopped !== undefined || (wanted === 0 && (rests || !(isLow || isEmpty)))) {
      return 0;
    }
    this.#target.adapt(now.mono, this.#buffer.drawn, wanted > 0);
    this.#buffer.low = this.#target.low;
    return this.#target.request(wanted, left);
  }

  #settle(count: number, generation: number, fetched: Fetched): void {
    switch (fetched.kind) {
      case "filled":
        this.#target.fitted();
        this.#rejectedAt = -Infinity;
        this.#state.noteSuccess();
        if (generation === this.#generation && this.#stopped === undefined) {
          this.#deliver(fetched.spans);
        }
        return;
      case "tooMany":
        this.#target.tooMany(count);
        return;
      case "rejected":
        this.#rejectedAt = this.#clock.mono();
        this.#reject(() => toError(fetched.failure, this.name));
        return;
      case "postponed":
        this.#rejectBefore(this.#clock.mono() + fetched.retryAfter, () => toError(fetched.failure, this.name));
        break;
      case "late":
        this.#state.noteFailure(fetched.failure);
        break;
      case "cancelled":
    }
  }

  /** Returns an error to the waiting calls whose deadline is before a time. Those that came later have the time to wait. */
  #rejectBefore(time: number, error: () => SnowmintError): void {
    for (const waiter of this.#waiters) {
      if (waiter.deadline < time) {
        this.#waiters.delete(waiter);
        waiter.reject(error());
      }
    }
  }

  /** Hands ids to the waiting calls, and the rest to the buffer. */
  #deliver(spans: readonly Span[]): void {
    const now = instant(this.#clock);
    for (const span of spans) {
      while (span.left > 0 && this.#serve(span, now)) {
        // The span may have ids for the next call too.
      }
      if (span.left > 0 && this.#keeps) {
        this.#buffer.add(span);
      }
    }
  }

  /** Gives ids to the first waiting call. Returns whether there was one. */
  #serve(span: Span, now: Instant): boolean {
    for (const waiter of this.#waiters) {
      if (waiter.take(span, now)) {
        this.#waiters.delete(waiter);
      }
      return true;
    }
    return false;
  }

  /** Returns how many ids the waiting calls need. */
  #wanted(now: Instant): number {
    let wanted = 0;
    for (const waiter of this.#waiters) {
      waiter.dropOld(now);
      wanted += waiter.missing;
    }
    return wanted;
  }
}

/** Many calls may share a signal, such as that of a shutdown: Node.js would warn of a leak. */
function allowManyListeners(signal: AbortSignal): void {
  try {
    setMaxListeners(0, signal);
  } catch {
    // A signal of another library, such as jsdom, does not warn.
  }
}
