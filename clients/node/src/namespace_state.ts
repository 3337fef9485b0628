import type { Failure } from "./failure.js";
import { type Health, newHealth } from "./servers.js";

/** A namespace as requests see it. */
export class NamespaceState {
  readonly name: string;
  readonly isText: boolean;
  readonly maxAge: number;
  /** The health of the namespace at each server. */
  readonly health: Health[];
  #lastFailure: Failure | undefined;

  constructor(name: string, isText: boolean, maxAge: number, servers: number) {
    this.name = name;
    this.isText = isText;
    this.maxAge = maxAge;
    this.health = newHealth(servers);
  }

  /** What failed last since the last ids. */
  get lastFailure(): Failure | undefined {
    return this.#lastFailure;
  }

  noteFailure(failure: Failure): void {
    // Somebody has to know of a second store, whatever else fails too.
    if (failure.kind === "AnotherStore" || this.#lastFailure?.kind !== "AnotherStore") {
      this.#lastFailure = failure;
    }
  }

  noteSuccess(): void {
    this.#lastFailure = undefined;
  }
}
