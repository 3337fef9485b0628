import { type Failure, noAnswer, unavailable } from "./failure.js";
import type { NamespaceState } from "./namespace_state.js";
import { Pause } from "./pause.js";
import { type Outcome, Round, type Shared } from "./round.js";

/** How a fetch ended: with ids, or why not. */
export type Fetched =
  | Exclude<Outcome, { kind: "nothing" }>
  /** The deadline has passed. */
  | { readonly kind: "late"; readonly failure: Failure }
  /** Every server asked to retry later than the deadline. */
  | { readonly kind: "postponed"; readonly failure: Failure; readonly retryAfter: number }
  | { readonly kind: "cancelled" };

/**
 * Requests ids from several servers: from one after the other, or from a second one while the first is slow. Each answer is used
 * once; if nobody awaits it any more, its ids are lost.
 */
export class Fetch {
  readonly #shared: Shared;
  readonly #namespace: NamespaceState;
  readonly #count: number;
  #running: Round | Pause | undefined;
  #isCancelled = false;

  constructor(shared: Shared, namespace: NamespaceState, count: number) {
    this.#shared = shared;
    this.#namespace = namespace;
    this.#count = count;
  }

  /** Requests ids until a server returns them, a server rejects the request, or the timeout passes. */
  async run(): Promise<Fetched> {
    const { choice, clock, timeout } = this.#shared;
    const { health } = this.#namespace;
    const deadline = clock.mono() + timeout;
    for (let n = 0; ; n++) {
      const round = new Round(this.#shared, this.#namespace, this.#count, deadline);
      this.#running = round;
      const outcome = await round.run();
      if (this.#wasCancelled()) {
        return { kind: "cancelled" };
      }
      if (outcome.kind !== "nothing") {
        return outcome;
      }
      const now = clock.mono();
      const retryAfter = choice.closedFor(health, now);
      if (now < deadline && retryAfter > deadline - now) {
        return { kind: "postponed", failure: this.#postponed(retryAfter), retryAfter };
      }
      const pause = new Pause(clock, Math.min(choice.pause(health, n, now), deadline - now));
      this.#running = pause;
      await pause.run();
      if (this.#wasCancelled()) {
        return { kind: "cancelled" };
      }
      if (clock.mono() >= deadline) {
        return { kind: "late", failure: this.#namespace.lastFailure ?? noAnswer(this.#firstServer(), timeout) };
      }
    }
  }

  /** Ends the fetch without ids, at once. */
  cancel(): void {
    this.#isCancelled = true;
    this.#running?.cancel();
  }

  /** A method, because the compiler takes a field for unchanged during an await. */
  #wasCancelled(): boolean {
    return this.#isCancelled;
  }

  #postponed(retryAfter: number): Failure {
    const last = this.#namespace.lastFailure;
    const said =
      last?.retryAfter === undefined
        ? unavailable(this.#firstServer(), "server asked to retry later (Retry-After)")
        : last;
    return { ...said, retryAfter };
  }

  #firstServer(): string {
    return this.#shared.servers[0]?.url ?? "";
  }
}
