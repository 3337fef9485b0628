import { MAX_COUNT } from "./target.js";
import { LONGEST_NAME, shown } from "./shown.js";

/** What an error means, and what to do about it. */
export type ErrorKind =
  /** No server returned ids within the timeout. Retry later; check that a server runs and can be reached. */
  | "Unavailable"
  /** The token has used up its quota of ids. Retry later, or raise the quota. */
  | "OverQuota"
  /** The server requires a token, or rejected the given one (401). Do not retry. */
  | "Unauthorized"
  /** The token does not allow this namespace (403). Do not retry. */
  | "Forbidden"
  /** The server does not have this namespace (404). Its text says how to create it. Do not retry. */
  | "UnknownNamespace"
  /** The client trusts no server's certificate, or the servers rejected the client's. Do not retry. */
  | "InvalidCertificate"
  /**
   * The ids of the server are of another store than those before, or than the option `store`. Together they may have duplicates, so
   * they were dropped. Correct the servers. Do not retry.
   */
  | "AnotherStore"
  /**
   * The server rejected the request for another reason, for instance because the ids of the namespace have a text form. Do not
   * retry.
   */
  | "Rejected"
  /** The name of the namespace is invalid. */
  | "InvalidNamespace"
  /** The count is not 1 to 1,000,000. */
  | "InvalidCount"
  /** The constructor of the client cannot use an option. */
  | "InvalidOption"
  /** The client was closed. */
  | "Closed";

const advice: Readonly<Partial<Record<ErrorKind, string>>> = {
  Unavailable: "check that a server runs and can be reached",
  OverQuota: "retry later, or raise the quota of the token",
  Unauthorized: "set a valid token with the option `token` or `tokenFile`",
  Forbidden: "use a token with the right `mint` for this namespace",
  InvalidCertificate: "check the certificates of the servers, and the options `caFile` and `clientCertificate`",
  AnotherStore: "its ids were dropped: correct the list of servers, or the store of that server",
  Rejected: "do not retry",
  Closed: "create a new client",
};

/** The members of an error that may be unknown. */
export interface ErrorFields {
  readonly namespace?: string | undefined;
  readonly server?: string | undefined;
  readonly status?: number | undefined;
  readonly retryAfter?: number | undefined;
  readonly cause?: unknown;
}

/** Why a call returned no ids, or why a client cannot use its options. It never contains a token or a password. */
export class SnowmintError extends Error {
  override readonly name = "SnowmintError";
  /** The kind of error. */
  readonly kind: ErrorKind;
  /** What happened, without advice. */
  readonly detail: string;
  /** The name of the namespace, unless the error is about an option. */
  readonly namespace: string | undefined;
  /** The URL of the server that rejected the request, or that failed last. */
  readonly server: string | undefined;
  /** The HTTP status of the server's answer. */
  readonly status: number | undefined;
  /** How long to wait before a retry, in ms, at most 1 min, if a server said so. */
  readonly retryAfter: number | undefined;

  constructor(kind: ErrorKind, detail: string, fields: ErrorFields = {}) {
    const hint = advice[kind];
    super(
      hint === undefined ? detail : `${detail}; ${hint}`,
      fields.cause === undefined ? undefined : { cause: fields.cause },
    );
    this.kind = kind;
    this.detail = detail;
    this.namespace = fields.namespace;
    this.server = fields.server;
    this.status = fields.status;
    this.retryAfter = fields.retryAfter;
  }

  /** Whether the same call may succeed later. */
  get temporary(): boolean {
    return this.kind === "Unavailable" || this.kind === "OverQuota";
  }
}

export function invalidOption(option: string, value: string, expected: string): SnowmintError {
  return new SnowmintError("InvalidOption", `${`invalid ${option} ${value}`.trim()}: expected ${expected}`);
}

export function invalidFile(option: string, cause: unknown): SnowmintError {
  return new SnowmintError("InvalidOption", `cannot use ${option}: ${messageOf(cause)}`, { cause });
}

export function invalidNamespace(name: unknown): SnowmintError {
  const namespace = String(name);
  const text = JSON.stringify(shown(namespace, LONGEST_NAME));
  const detail = `invalid namespace name ${text}: expected 1 to 64 letters, digits, '.', '_', '-' or ':'`;
  return new SnowmintError("InvalidNamespace", detail, { namespace });
}

export function invalidCount(namespace: string, count: number): SnowmintError {
  return new SnowmintError("InvalidCount", `invalid count ${String(count)}: expected 1 to ${String(MAX_COUNT)}`, {
    namespace,
  });
}

export function closed(namespace: string): SnowmintError {
  return new SnowmintError("Closed", "the client is closed", { namespace });
}

/** Returns the text of anything that was thrown. A failed connection to several addresses has its texts inside. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof AggregateError && thrown.message === "") {
    return thrown.errors.map(messageOf).join(", ");
  }
  return thrown instanceof Error ? thrown.message : String(thrown);
}
