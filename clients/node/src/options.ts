/** The options of a client. Times are in ms. */
export interface Options {
  /**
   * URLs of the nodes of one service: http://HOST:PORT or https://…, with a path if a proxy needs it. All must share one store.
   */
  readonly servers: readonly string[];
  /**
   * Which server gets a request first. `shuffled`: a random one for each client, so that clients share the load. `asListed`: the
   * first in the list while it works, then the next; for servers at different distances. Default: `shuffled`.
   */
  readonly order?: "shuffled" | "asListed" | undefined;
  /** Sent to every server as `Authorization: Bearer`. Over http, anyone on the network path can read it. */
  readonly token?: string | undefined;
  /** A file with the token. It is read for each request, so a new token takes effect immediately. */
  readonly tokenFile?: string | undefined;
  /** A PEM file with the certificate authorities to trust. Default: those of Node.js. */
  readonly caFile?: string | undefined;
  /** PEM files of the client's certificate and key, for servers that require one. */
  readonly clientCertificate?: { readonly certFile: string; readonly keyFile: string } | undefined;
  /**
   * Identity of the store of the servers, as `snowmint doctor` shows it. Ids of any other store are dropped, and ids without a store
   * too. Default: the store of the first answer.
   */
  readonly store?: string | undefined;
  /** How long a call waits for ids, 1 ms to 1 h. Default: 5,000. */
  readonly timeout?: number | undefined;
  /** How long a server may take before a second one gets the same request. Default: 50. `Infinity` turns it off. */
  readonly hedgeAfter?: number | undefined;
  /**
   * Maximum age of an id from memory, counted from its request, 1 ms or more. Default: 1,000. Ids of two clients sort by time only
   * up to this age. A call that waits may return ids that are older by its waiting time.
   */
  readonly maxAge?: number | undefined;
  /** Maximum age of single namespaces. Use `Infinity` for numbers, so that none are dropped. */
  readonly namespaceMaxAge?: Readonly<Record<string, number>> | undefined;
  /**
   * How many ids each namespace keeps in memory, 0 to 1,000,000. Within these bounds the number follows the use. Default: 0 to
   * 1,000,000. Of texts at most 100,000 are kept. With `{ max: 0 }` nothing is kept, and each call is a request.
   */
  readonly buffer?: { readonly min?: number | undefined; readonly max?: number | undefined } | undefined;
}
