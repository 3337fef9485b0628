import { setImmediate } from "node:timers/promises";

import type { Clock, Timer } from "../src/clock.js";

/** A clock that a test sets. Its timers run when the test advances it. */
export class TestClock implements Clock {
  #mono = 1000;
  #wall = 1_800_000_000_000;
  #timers: { at: number; run: () => void }[] = [];

  mono(): number {
    return this.#mono;
  }

  wall(): number {
    return this.#wall;
  }

  after(ms: number, run: () => void): Timer {
    const timer = { at: this.#mono + ms, run };
    this.#timers.push(timer);
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
      },
    };
  }

  /** The number of timers that have not run. */
  get timers(): number {
    return this.#timers.length;
  }

  /** Sets the wall clock forward or back. */
  setWall(by: number): void {
    this.#wall += by;
  }

  /** Advances both clocks, and runs the timers that are due, in order. */
  async advance(ms: number): Promise<void> {
    const end = this.#mono + ms;
    await settled();
    for (;;) {
      const [next] = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      this.#moveTo(next?.at ?? end);
      if (next === undefined) {
        return;
      }
      this.#timers = this.#timers.filter((other) => other !== next);
      next.run();
      await settled();
    }
  }

  #moveTo(mono: number): void {
    this.#wall += mono - this.#mono;
    this.#mono = mono;
  }
}

/** Returns when everything that waits for promises alone has run. */
export async function settled(): Promise<void> {
  await setImmediate();
}
