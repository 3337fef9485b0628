import type { Clock, Timer } from "./clock.js";
import { type Failure, noAnswer, unavailable } from "./failure.js";
import type { NamespaceState } from "./namespace_state.js";
import { type Outcome, Round, type Shared } from "./round.js";

/** How a fetch ended: with ids, or why not. */
export type Fetched =
  | Exclude<Outcome, { kind: "nothing" }>
  /** The deadline has passed. */
  | { readonly kind: "late"; readonly failure: Failure }
  /** Every server asked to retry later than the deadline. */
  | { readonly kind: "postponed"; readonly failure: Failure };

/**
 * Requests ids from several servers: from one after the other, or from a second one while the first is slow. Each answer is used
 * once; if nobody awaits it any more, its ids are lost.
 */
export class Fetcher {
  readonly shared: Shared;
  #isClosed = false;
  /** The rounds, and the pauses between them. */
  readonly #running = new Set<{ cancel(): void }>();

  constructor(shared: Shared) {
    this.shared = shared;
  }

  /** Requests ids until a server returns them, a server rejects the request, or the timeout passes. */
  async fetch(namespace: NamespaceState, count: number): Promise<Fetched> {
    const { choice, clock, timeout } = this.shared;
    const deadline = clock.mono() + timeout;
    for (let round = 0; ; round++) {
      const outcome = await this.#untilClosed(new Round(this.shared, namespace, count, deadline));
      if (outcome.kind !== "nothing") {
        return outcome;
      }
      const now = clock.mono();
      const closed = choice.closedFor(namespace.health, now);
      if (now < deadline && closed > deadline - now) {
        return { kind: "postponed", failure: this.#postponed(namespace.lastFailure, closed) };
      }
      if (!this.#isClosed) {
        await this.#untilClosed(new Pause(clock, Math.min(choice.pause(namespace.health, round, now), deadline - now)));
      }
      if (this.#isClosed || clock.mono() >= deadline) {
        return { kind: "late", failure: namespace.lastFailure ?? noAnswer(this.#firstServer(), timeout) };
      }
    }
  }

  /** Ends all fetches. */
  close(): void {
    this.#isClosed = true;
    for (const running of this.#running) {
      running.cancel();
    }
  }

  #postponed(last: Failure | undefined, closed: number): Failure {
    const said =
      last?.retryAfter === undefined
        ? unavailable(this.#firstServer(), "server asked to retry later (Retry-After)")
        : last;
    return { ...said, retryAfter: closed };
  }

  #firstServer(): string {
    return this.shared.servers[0]?.url ?? "";
  }

  async #untilClosed<T>(running: { run(): Promise<T>; cancel(): void }): Promise<T> {
    this.#running.add(running);
    try {
      return await running.run();
    } finally {
      this.#running.delete(running);
    }
  }
}

class Pause {
  readonly #clock: Clock;
  readonly #ms: number;
  #end: () => void = () => undefined;

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#ms = ms;
  }

  async run(): Promise<void> {
    let timer: Timer | undefined;
    await new Promise<void>((resolve) => {
      this.#end = resolve;
      timer = this.#clock.after(this.#ms, resolve);
    });
    timer?.cancel();
  }

  cancel(): void {
    this.#end();
  }
}
