import { Agents } from "./agents.js";
import { systemClock } from "./clock.js";
import { closed, invalidNamespace } from "./errors.js";
import { BigIntIds, type Ids, StringIds } from "./ids.js";
import type { Options } from "./options.js";
import { httpSend } from "./request.js";
import type { Shared } from "./round.js";
import { ServerChoice } from "./servers.js";
import { type Settings, settingsOf } from "./settings.js";
import { Source } from "./source.js";
import { StoreGuard } from "./store_guard.js";
import { fileToken, fixedToken } from "./token.js";

/** Counts for metrics since the client was created. `buffered` is the present number. */
export interface Stats {
  /** The number of requests sent to servers, including hedged ones. */
  readonly requests: number;
  /** The number of requests sent to a second server because the first had not answered yet. */
  readonly hedged: number;
  /** The number of requests that failed, were rejected, or were abandoned. */
  readonly failed: number;
  /** The number of ids in memory, of all namespaces. */
  readonly buffered: number;
}

/** The handles of a namespace, and the ids that they share. */
interface Namespace {
  readonly source: Source;
  readonly strings: StringIds;
  readonly bigints: BigIntIds;
}

/**
 * A client of one or more Snowmint servers that share a store. Create one for a program, and share it.
 *
 * A client that waits for no ids does not keep the process running.
 */
export class Client {
  readonly #settings: Settings;
  readonly #agents: Agents;
  readonly #shared: Shared;
  readonly #numbers = new Map<string, Namespace>();
  readonly #texts = new Map<string, Namespace>();
  #isClosed = false;

  /**
   * Creates a client. It reads the files of the options, and sends no request.
   *
   * @throws SnowmintError of the kind `InvalidOption`
   */
  constructor(options: Options) {
    const settings = settingsOf(options);
    const { tokenFile, timeout, hedgeAfter } = settings;
    this.#settings = settings;
    this.#agents = new Agents(settings);
    const token = tokenFile === undefined ? fixedToken(settings.token) : fileToken(tokenFile);
    const servers = settings.isShuffled ? shuffled(settings.servers) : settings.servers;
    this.#shared = {
      servers,
      choice: new ServerChoice(servers.length, Math.random),
      stores: new StoreGuard(settings.store),
      send: httpSend(this.#agents, token, systemClock),
      clock: systemClock,
      timeout,
      hedgeAfter,
      counts: { requests: 0, hedged: 0, failed: 0 },
    };
  }

  /**
   * Returns a handle for the ids of a namespace as strings: plain numbers, of a snowflake layout or a segment. It sends no request.
   * An invalid name is the error of each call.
   */
  namespace(name: string): Ids<string> {
    return this.#open(this.#numbers, name, false).strings;
  }

  /** Returns a handle like that of {@link namespace}, but for bigints. Both draw from the same ids. */
  bigints(name: string): Ids<bigint> {
    return this.#open(this.#numbers, name, false).bigints;
  }

  /** Returns a handle for the ids of a namespace with a text form, such as "ORD-000017". */
  texts(name: string): Ids<string> {
    return this.#open(this.#texts, name, true).strings;
  }

  /**
   * The identity of the store whose ids this client returns: the one that was set, or that the first answer named. `undefined`
   * before.
   */
  get store(): string | undefined {
    const { store } = this.#shared.stores;
    return store === "" ? undefined : store;
  }

  /** Returns counts for metrics. */
  stats(): Stats {
    const buffered = this.#sources().reduce((sum, source) => sum + source.buffered, 0);
    return { ...this.#shared.counts, buffered };
  }

  /** Drops all ids and closes the connections. Calls that wait and all later calls get an error of the kind `Closed`. */
  close(): Promise<void> {
    this.#isClosed = true;
    for (const source of this.#sources()) {
      source.stop(() => closed(source.name));
    }
    this.#agents.close();
    return Promise.resolve();
  }

  /** Closes the client at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #sources(): Source[] {
    return [...this.#numbers.values(), ...this.#texts.values()].map(({ source }) => source);
  }

  #open(namespaces: Map<string, Namespace>, name: string, isText: boolean): Namespace {
    const opened = namespaces.get(name);
    if (opened !== undefined) {
      return opened;
    }
    const { maxAge, namespaceMaxAge, buffer } = this.#settings;
    const source = new Source(name, isText, {
      shared: this.#shared,
      maxAge: namespaceMaxAge.get(name) ?? maxAge,
      buffer,
    });
    const namespace = { source, strings: new StringIds(source), bigints: new BigIntIds(source) };
    if (!isName(name)) {
      source.stop(() => invalidNamespace(name));
    } else if (this.#isClosed) {
      source.stop(() => closed(name));
    } else {
      namespaces.set(name, namespace);
    }
    return namespace;
  }
}

/** Returns whether a namespace can have a name; a program without types may give anything. */
function isName(name: unknown): boolean {
  return typeof name === "string" && /^[A-Za-z0-9._:-]{1,64}$/.test(name);
}

/** Returns the items in a random order. */
function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
