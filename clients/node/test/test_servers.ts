import type { Clock } from "../src/clock.js";
import type { Failure } from "../src/failure.js";
import type { Granted, IdRequest } from "../src/request.js";
import type { Shared } from "../src/round.js";
import { server } from "../src/server.js";
import { ServerChoice } from "../src/servers.js";
import { Numbers } from "../src/span.js";
import { StoreGuard } from "../src/store_guard.js";

/** A request that a test answers. */
export interface TestRequest extends IdRequest {
  /** The name of the server: "a", "b", … */
  readonly server: string;
  /** Answers with new ids. */
  grant(store?: string): void;
  answer(reply: Granted | Failure): void;
  fail(failure: Partial<Failure>): void;
}

/** Servers without a network: the test answers each request, in any order. Ids count from 1. */
export class TestServers {
  readonly requests: TestRequest[] = [];
  readonly shared: Shared;
  #next = 1n;

  constructor(names: readonly string[], clock: Clock, options: { timeout?: number; hedgeAfter?: number } = {}) {
    this.shared = {
      servers: names.map((name) => server(`http://${name}`)),
      choice: new ServerChoice(names.length, () => 1),
      stores: new StoreGuard(""),
      clock,
      timeout: options.timeout ?? 5000,
      hedgeAfter: options.hedgeAfter ?? Infinity,
      counts: { requests: 0, hedged: 0, failed: 0 },
      send: ({ url }, request) =>
        new Promise((resolve) => {
          this.requests.push({
            ...request,
            server: url.slice("http://".length),
            answer: resolve,
            grant: (store = "") => {
              const ids = new Numbers(this.#next, 1n, request.count, request.until);
              this.#next += BigInt(request.count);
              resolve({ spans: [ids], store });
            },
            fail: (failure) => {
              resolve({
                server: url,
                detail: "test",
                kind: "Unavailable",
                retry: "elsewhere",
                scope: "server",
                ...failure,
              });
            },
          });
        }),
    };
  }

  /** Returns a request: the first one is 0, the last one -1. */
  request(index: number): TestRequest {
    const request = this.requests.at(index);
    if (request === undefined) {
      throw new Error(`there are ${String(this.requests.length)} requests, and none at ${String(index)}`);
    }
    return request;
  }
}
