import type { Clock, Timer } from "./clock.js";

/** A time without requests. */
export class Pause {
  readonly #clock: Clock;
  readonly #ms: number;
  #timer: Timer | undefined;
  #end: () => void = () => undefined;

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#ms = ms;
  }

  run(): Promise<void> {
    return new Promise((resolve) => {
      this.#end = resolve;
      this.#timer = this.#clock.after(this.#ms, resolve);
    });
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#end();
  }
}
