import { type ErrorKind, SnowmintError } from "./errors.js";

/** Whether and where to retry a failed request. */
export type Retry =
  /** Every server would answer the same. */
  | "never"
  /** At another server, or later at the same one. */
  | "elsewhere"
  /** Like elsewhere, but the same error returns until somebody replaces a certificate, or corrects a store. */
  | "afterRepair"
  /** With fewer ids. */
  | "fewer";

/** Which requests a failure affects: those for every namespace, or for one. */
export type Scope = "server" | "namespace";

/** What an answer means. */
export interface Meaning {
  /** What the caller gets if no later request succeeds. */
  readonly kind: ErrorKind;
  readonly retry: Retry;
  readonly scope: Scope;
}

/** One failed request. */
export interface Failure extends Meaning {
  readonly server: string;
  readonly detail: string;
  readonly status?: number;
  /** The server's Retry-After in ms. */
  readonly retryAfter?: number | undefined;
}

export function unavailable(server: string, detail: string): Failure {
  return { server, detail, kind: "Unavailable", retry: "elsewhere", scope: "server" };
}

export function noAnswer(server: string, within: number): Failure {
  return unavailable(server, `no answer within ${String(Math.round(within))} ms`);
}

/** Returns a failure as the error of a call. */
export function toError(failure: Failure, namespace: string): SnowmintError {
  return new SnowmintError(failure.kind, detailOf(failure), { ...failure, namespace });
}

/** Returns the error of a call that got no ids within its timeout. */
export function timedOut(namespace: string, timeout: number, last: Failure | undefined): SnowmintError {
  const why = last === undefined ? "no server has answered" : detailOf(last);
  const detail = `no ids of namespace "${namespace}" within ${String(timeout)} ms: ${why}`;
  return new SnowmintError(last?.kind ?? "Unavailable", detail, { ...last, namespace });
}

function detailOf({ server, detail }: Failure): string {
  return `${server}: ${detail}`;
}
