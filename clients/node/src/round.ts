import { type Clock, type Instant, instant, plus, type Timer } from "./clock.js";
import { messageOf } from "./errors.js";
import { type Failure, noAnswer, unavailable } from "./failure.js";
import type { NamespaceState } from "./namespace_state.js";
import type { Granted, Send } from "./request.js";
import type { Server } from "./server.js";
import type { ServerChoice } from "./servers.js";
import type { Span } from "./span.js";
import type { StoreGuard } from "./store_guard.js";

/** The longest timeout of one request to one server, in ms. */
const LONGEST_ATTEMPT = 2000;
/** The part of it that the server may spend on making ids. */
const PART_TO_MAKE = 0.8;

/** What all requests of a client share. */
export interface Shared {
  /** In the order in which to try them. */
  readonly servers: readonly Server[];
  readonly choice: ServerChoice;
  readonly stores: StoreGuard;
  readonly send: Send;
  readonly clock: Clock;
  readonly timeout: number;
  readonly hedgeAfter: number;
  readonly counts: { requests: number; hedged: number; failed: number };
}

/** How a round ended. */
export type Outcome =
  | { readonly kind: "filled"; readonly spans: readonly Span[] }
  /** No server returned ids. */
  | { readonly kind: "nothing" }
  /** No server returns this many ids at once. */
  | { readonly kind: "tooMany" }
  /** A server rejected the request. */
  | { readonly kind: "rejected"; readonly failure: Failure };

/** A request without an answer. */
interface Attempt {
  readonly server: Server;
  readonly sent: Instant;
  readonly abort: AbortController;
  readonly timer: Timer;
}

/** Sends one request to each server at most, until one of them returns ids. */
export class Round {
  readonly #shared: Shared;
  readonly #namespace: NamespaceState;
  readonly #count: number;
  readonly #deadline: number;
  readonly #attemptTimeout: number;
  /** The servers that have not got the request. */
  readonly #order: number[];
  readonly #waiting = new Map<number, Attempt>();
  #hedge: Timer | undefined;
  /** Servers whose quota may have fewer ids left. They get the next request only if no other server returns ids. */
  readonly #spent: [server: number, failure: Failure][] = [];
  #isOverQuota = false;
  /** The number of servers whose certificate or store is another one. */
  #distrusted = 0;
  #resolve: (outcome: Outcome) => void = () => undefined;

  /** @param deadline - of the monotonic clock */
  constructor(shared: Shared, namespace: NamespaceState, count: number, deadline: number) {
    this.#shared = shared;
    this.#namespace = namespace;
    this.#count = count;
    this.#deadline = deadline;
    // Half of the timeout, so that there is time for another server.
    this.#attemptTimeout = Math.min(LONGEST_ATTEMPT, shared.timeout / 2);
    this.#order = shared.choice.order(namespace.health, shared.clock.mono());
  }

  run(): Promise<Outcome> {
    if (this.#order.length > 0) {
      this.#shared.choice.requested();
    }
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.#sendNext();
    });
  }

  /** Ends the round without ids. The servers without an answer have not failed. */
  cancel(): void {
    this.#abandon(Infinity);
    this.#resolve({ kind: "nothing" });
  }

  /** Sends the request to the next server, or ends the round if nobody can answer any more. */
  #sendNext(): void {
    const index = this.#shared.clock.mono() < this.#deadline ? this.#order.shift() : undefined;
    const server = index === undefined ? undefined : this.#shared.servers[index];
    if (index !== undefined && server !== undefined) {
      this.#send(index, server);
      this.#startHedge();
    } else if (this.#waiting.size === 0) {
      this.#finish({ kind: this.#isOverQuota && this.#count > 1 ? "tooMany" : "nothing" });
    }
  }

  #send(index: number, server: Server): void {
    const { clock, counts, send } = this.#shared;
    const { name, isText, maxAge } = this.#namespace;
    const sent = instant(clock);
    const limit = Math.min(this.#attemptTimeout, this.#deadline - sent.mono);
    const abort = new AbortController();
    const timer = clock.after(limit, () => {
      abort.abort();
      this.#settle(index, noAnswer(server.url, limit));
    });
    this.#waiting.set(index, { server, sent, abort, timer });
    counts.requests++;
    send(server, {
      namespace: name,
      isText,
      count: this.#count,
      wait: limit * PART_TO_MAKE,
      until: plus(sent, maxAge),
      signal: abort.signal,
    }).then(
      (reply) => {
        this.#settle(index, reply);
      },
      (thrown: unknown) => {
        this.#settle(index, unavailable(server.url, messageOf(thrown)));
      },
    );
  }

  #startHedge(): void {
    const { choice, clock, counts, hedgeAfter } = this.#shared;
    this.#hedge?.cancel();
    if (this.#order.length > 0 && hedgeAfter < this.#attemptTimeout) {
      this.#hedge = clock.after(hedgeAfter, () => {
        if (choice.mayHedge()) {
          counts.hedged++;
          this.#sendNext();
        }
      });
    }
  }

  /** Takes what a server answered. Nobody awaits a second answer, or one after the round: its ids are lost. */
  #settle(index: number, reply: Granted | Failure): void {
    const attempt = this.#waiting.get(index);
    if (attempt === undefined) {
      return;
    }
    attempt.timer.cancel();
    this.#waiting.delete(index);
    if (!("spans" in reply)) {
      this.#settleFailure(index, reply);
      return;
    }
    const another = this.#shared.stores.check(attempt.server.url, reply.store);
    if (another !== undefined) {
      this.#settleFailure(index, another);
      return;
    }
    for (const [server, failure] of this.#spent) {
      this.#fail(server, failure);
    }
    this.#shared.choice.succeeded(this.#namespace.health, index);
    this.#finish({ kind: "filled", spans: reply.spans });
  }

  #settleFailure(index: number, failure: Failure): void {
    const { clock, counts, servers } = this.#shared;
    counts.failed++;
    const isBeyond = failure.retryAfter !== undefined && clock.mono() + failure.retryAfter > this.#deadline;
    if (this.#count > 1 && failure.kind === "OverQuota" && isBeyond) {
      this.#spent.push([index, failure]);
    } else {
      this.#fail(index, failure);
    }
    if (failure.retry === "afterRepair") {
      this.#distrusted++;
    }
    // No retry within the caller's timeout repairs all servers.
    if (failure.retry === "never" || this.#distrusted === servers.length) {
      this.#finish({ kind: "rejected", failure });
      return;
    }
    if (failure.retry === "fewer" && this.#count > 1) {
      this.#finish({ kind: "tooMany" });
      return;
    }
    this.#isOverQuota ||= failure.kind === "OverQuota";
    this.#namespace.noteFailure(failure);
    this.#sendNext();
  }

  #fail(index: number, { retry, scope, retryAfter = 0 }: Failure): void {
    // A server that gave another answer is healthy.
    if (retry === "elsewhere" || retry === "afterRepair") {
      const { choice, clock } = this.#shared;
      choice.failed(this.#namespace.health, index, scope, clock.mono(), retryAfter);
    }
  }

  #finish(outcome: Outcome): void {
    this.#abandon(Math.min(this.#shared.hedgeAfter, this.#attemptTimeout));
    this.#resolve(outcome);
  }

  /** Gives up the servers that have not answered. Those that had enough time count as failed. */
  #abandon(enough: number): void {
    const { choice, clock, counts } = this.#shared;
    this.#hedge?.cancel();
    const now = clock.mono();
    for (const [index, { sent, abort, timer }] of this.#waiting) {
      timer.cancel();
      abort.abort();
      counts.failed++;
      if (now - sent.mono >= enough) {
        choice.failed(this.#namespace.health, index, "server", now, 0);
      }
    }
    this.#waiting.clear();
  }
}
