import { invalidOption, SnowmintError } from "./errors.js";
import type { Options } from "./options.js";
import { type Server, server } from "./server.js";
import { LONGEST_NAME, shown } from "./shown.js";
import { MAX_COUNT } from "./target.js";
import { isToken } from "./token.js";

/** Options that were checked, with their defaults. */
export interface Settings {
  readonly servers: readonly Server[];
  readonly isShuffled: boolean;
  readonly token: string;
  readonly tokenFile: string | undefined;
  readonly caFile: string | undefined;
  readonly clientCertificate: { readonly certFile: string; readonly keyFile: string } | undefined;
  readonly store: string;
  readonly timeout: number;
  readonly hedgeAfter: number;
  readonly maxAge: number;
  readonly namespaceMaxAge: ReadonlyMap<string, number>;
  readonly buffer: readonly [min: number, max: number];
}

const HOUR = 3_600_000;

/** Each option, so that a wrong spelling is an error. */
const names: Readonly<Record<keyof Options, true>> = {
  servers: true,
  order: true,
  token: true,
  tokenFile: true,
  caFile: true,
  clientCertificate: true,
  store: true,
  timeout: true,
  hedgeAfter: true,
  maxAge: true,
  namespaceMaxAge: true,
  buffer: true,
};

/** Checks options as a program without types may give them, and throws the first one that is invalid. */
export function settingsOf(options: Options): Settings {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(names, name)) {
      throw invalidOption("option", quoted(name), `one of ${Object.keys(names).join(", ")}`);
    }
  }
  const { order = "shuffled", tokenFile, caFile, clientCertificate, store = "" } = options;
  if (!["shuffled", "asListed"].includes(order)) {
    throw invalidOption("order", quoted(order), "shuffled or asListed");
  }
  if (store !== "" && !/^smst_[0-9a-z]{26}$/.test(store)) {
    throw invalidOption("store", quoted(store), "smst_ and 26 digits, as `snowmint doctor` shows it");
  }
  if (clientCertificate !== undefined && !(clientCertificate.certFile && clientCertificate.keyFile)) {
    throw invalidOption("clientCertificate", "", "certFile and keyFile");
  }
  const ages = Object.entries(options.namespaceMaxAge ?? {});
  return {
    servers: serversOf(options.servers),
    isShuffled: order === "shuffled",
    token: tokenOf(options.token, tokenFile),
    tokenFile,
    caFile,
    clientCertificate,
    store,
    timeout: time("timeout", options.timeout ?? 5000, 1, HOUR, "1 ms to 1 h"),
    hedgeAfter: time("hedgeAfter", options.hedgeAfter ?? 50, Number.MIN_VALUE, Infinity, "more than 0 ms"),
    maxAge: age("maxAge", options.maxAge ?? 1000),
    namespaceMaxAge: new Map(ages.map(([name, value]) => [name, age(`namespaceMaxAge of ${quoted(name)}`, value)])),
    buffer: bufferOf(options.buffer),
  };
}

function serversOf(servers: unknown): Server[] {
  if (!Array.isArray(servers) || servers.length === 0) {
    throw new SnowmintError(
      "InvalidOption",
      "no server: name one with the option `servers`, such as http://127.0.0.1:8080",
    );
  }
  return servers.map(server);
}

function tokenOf(token: unknown, tokenFile: unknown): string {
  if (token !== undefined && tokenFile !== undefined) {
    throw invalidOption("token", "", "either token or tokenFile, not both");
  }
  const text = typeof token === "string" ? token.trim() : "";
  if (token !== undefined && !isToken(text)) {
    throw invalidOption("token", "", "visible ASCII characters");
  }
  return text;
}

function bufferOf({ min = 0, max = MAX_COUNT }: NonNullable<Options["buffer"]> = {}): [number, number] {
  if (!(Number.isInteger(min) && Number.isInteger(max) && 0 <= min && min <= max && max <= MAX_COUNT)) {
    throw invalidOption("buffer", JSON.stringify({ min, max }), `0 <= min <= max <= ${String(MAX_COUNT)}`);
  }
  return [min, max];
}

function age(option: string, value: unknown): number {
  return time(option, value, 1, Infinity, "at least 1 ms");
}

function time(option: string, value: unknown, min: number, max: number, expected: string): number {
  if (typeof value !== "number" || !(value >= min && value <= max)) {
    throw invalidOption(option, quoted(value), expected);
  }
  return value;
}

function quoted(value: unknown): string {
  return typeof value === "number" ? String(value) : JSON.stringify(shown(String(value), LONGEST_NAME));
}
