/**
 * A reading of two clocks, in ms. The monotonic clock never goes back, but may stop while the machine is suspended. The wall clock
 * includes suspended time, but may be set back. An age is the larger of both.
 */
export interface Instant {
  readonly mono: number;
  readonly wall: number;
}

export interface Timer {
  cancel(): void;
}

/** The clocks and timers of a client. Tests have their own. */
export interface Clock {
  mono(): number;
  wall(): number;
  /** Runs a function after some ms, never earlier. Only a timer that `keepsAlive` keeps the process running. */
  after(ms: number, run: () => void, keepsAlive?: boolean): Timer;
}

export function instant(clock: Clock): Instant {
  return { mono: clock.mono(), wall: clock.wall() };
}

/** Returns the instant at which ids of this instant reach an age. */
export function plus(at: Instant, age: number): Instant {
  return { mono: at.mono + age, wall: at.wall + age };
}

/** Returns whether one of the clocks has reached the instant. */
export function isOver(at: Instant, now: Instant): boolean {
  return at.mono <= now.mono || at.wall <= now.wall;
}

/**
 * A timer that first lets answers in. While a program blocks the event loop, an answer may arrive in time, but Node.js runs
 * timers before it reads sockets, and immediates after it.
 */
class LoopTimer implements Timer {
  readonly #timeout: NodeJS.Timeout;
  #immediate: NodeJS.Immediate | undefined;

  constructor(ms: number, run: () => void, keepsAlive: boolean) {
    // Node.js counts whole ms, and may be 1 ms early.
    this.#timeout = setTimeout(() => (this.#immediate = setImmediate(run)), Math.ceil(ms) + 1);
    if (!keepsAlive) {
      this.#timeout.unref();
    }
  }

  cancel(): void {
    clearTimeout(this.#timeout);
    clearImmediate(this.#immediate);
  }
}

export const systemClock: Clock = {
  mono: () => performance.now(),
  wall: () => Date.now(),
  after: (ms, run, keepsAlive = false) => new LoopTimer(ms, run, keepsAlive),
};
