import type { Failure } from "./failure.js";
import { LONGEST_NAME, shown } from "./shown.js";

/** Rejects ids of another store. The first store that an answer names is the client's, unless the option `store` sets it. */
export class StoreGuard {
  #store: string;
  /** The server that named the store first; `undefined` if the option did. */
  #namedBy: string | undefined;

  constructor(store: string) {
    this.#store = store;
  }

  /** The identity of the store; "" before it is known. */
  get store(): string {
    return this.#store;
  }

  /** Returns why the ids of an answer must be dropped. */
  check(server: string, named: string): Failure | undefined {
    if (named === this.#store) {
      return undefined;
    }
    if (this.#store === "") {
      this.#store = named;
      this.#namedBy = server;
      return undefined;
    }
    if (named === "" && this.#namedBy !== undefined) {
      // A server of an earlier version, or behind a proxy that removes headers.
      return undefined;
    }
    const reason = this.#namedBy === undefined ? "as set with the option `store`" : `the store of ${this.#namedBy}`;
    const is =
      named === "" ? "the answer names no store" : `the ids are of another store, ${shown(named, LONGEST_NAME)}`;
    const detail = `${is}: expected ${this.#store}, ${reason}`;
    return { server, kind: "AnotherStore", status: 200, detail, retry: "afterRepair", scope: "server" };
  }
}
