import type { Scope } from "./failure.js";

/** How long a server is tried last after its first failure, in ms; doubled after each further one. */
const LEFT_OUT = 100;
const LONGEST_LEFT_OUT = 10_000;
/** The pause after every server failed, in ms; doubled after each further round. */
const FIRST_PAUSE = 20;
const LONGEST_PAUSE = 1000;
/**
 * How many hedged requests may follow each other. Each 10 requests allow one more, so that hedging does not double the load when all
 * servers are slow.
 */
const HEDGES = 10;
const REQUESTS_PER_HEDGE = 10;

/** The state of a server, or of a namespace at a server. Times are of the monotonic clock, in ms. */
export interface Health {
  failures: number;
  /** Until then, other servers are tried first. */
  leftOutUntil: number;
  /** Until then, the server gets no requests (Retry-After). */
  notBefore: number;
}

export function newHealth(servers: number): Health[] {
  return Array.from({ length: servers }, healthy);
}

function healthy(): Health {
  return { failures: 0, leftOutUntil: -Infinity, notBefore: -Infinity };
}

/** Decides which server is tried next: in the order of the list, but those that failed come last for a while. */
export class ServerChoice {
  readonly #servers: Health[];
  readonly #random: () => number;
  /** The credit for hedged requests, in requests. */
  #credit = HEDGES * REQUESTS_PER_HEDGE;

  /**
   * @param servers - the number of servers
   * @param random - returns a number from 0 to 1
   */
  constructor(servers: number, random: () => number) {
    this.#servers = newHealth(servers);
    this.#random = random;
  }

  /**
   * Returns the servers in the order in which to try them: those that work, then those left out, by when they return. Servers that
   * asked for a later retry are missing.
   *
   * @param own - the health of the namespace at each server
   */
  order(own: readonly Health[], now: number): number[] {
    const until = (server: number) => Math.max(this.#latest(own, server, "leftOutUntil"), now);
    return [...this.#servers.keys()]
      .filter((server) => this.#latest(own, server, "notBefore") <= now)
      .sort((a, b) => until(a) - until(b));
  }

  /** Records that a server returned ids of a namespace. */
  succeeded(own: Health[], server: number): void {
    this.#servers[server] = healthy();
    own[server] = healthy();
  }

  /** Records a failure, and for how many ms the server gets no request. */
  failed(own: Health[], server: number, scope: Scope, now: number, retryAfter: number): void {
    const states = scope === "namespace" ? own : this.#servers;
    const { failures, notBefore } = states[server] ?? healthy();
    states[server] = {
      failures: failures + 1,
      leftOutUntil: now + this.#jitter(doubled(LEFT_OUT, failures, LONGEST_LEFT_OUT)),
      // A request that was on its way may fail without a Retry-After.
      notBefore: Math.max(notBefore, now + retryAfter),
    };
  }

  /** Returns how many ms to pause after a round, the first one is 0, in which no server returned ids of the namespace. */
  pause(own: readonly Health[], round: number, now: number): number {
    return Math.max(this.#jitter(doubled(FIRST_PAUSE, round, LONGEST_PAUSE)), this.closedFor(own, now));
  }

  /** Returns how many ms it takes until some server accepts requests for the namespace again. */
  closedFor(own: readonly Health[], now: number): number {
    const opens = this.#servers.map((_, server) => this.#latest(own, server, "notBefore"));
    return Math.max(Math.min(...opens) - now, 0);
  }

  /** Records a request that is not hedged. */
  requested(): void {
    this.#credit = Math.min(this.#credit + 1, HEDGES * REQUESTS_PER_HEDGE);
  }

  /** Returns whether one more hedged request may be sent now, and records it. */
  mayHedge(): boolean {
    if (this.#credit < REQUESTS_PER_HEDGE) {
      return false;
    }
    this.#credit -= REQUESTS_PER_HEDGE;
    return true;
  }

  /** Returns the later time of a server and of a namespace there. */
  #latest(own: readonly Health[], server: number, time: "leftOutUntil" | "notBefore"): number {
    return Math.max(this.#servers[server]?.[time] ?? -Infinity, own[server]?.[time] ?? -Infinity);
  }

  /** Returns a time between half of the longest and the longest, so that clients do not return together. */
  #jitter(longest: number): number {
    return longest * (0.5 + 0.5 * this.#random());
  }
}

/** Returns a first time, doubled so many times, and `longest` at most. */
function doubled(first: number, times: number, longest: number): number {
  return Math.min(first * 2 ** times, longest);
}
