import type { Meaning, Scope } from "./failure.js";

/** The longest Retry-After that is honoured, in ms. */
const LONGEST_RETRY_AFTER = 60_000;
/** The begin of an HTTP date. `Date.parse` alone would read "-3" as a date too. */
const DATE = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? /;

/**
 * Returns what an error answer means.
 *
 * @param problem - the last part of Snowmint's problem type; "" without one
 */
export function meaning(status: number, problem: string): Meaning {
  // An unknown problem of a later server counts for the namespace: if it concerns the server, each namespace finds out with its own
  // request. The opposite mistake would stop namespaces that work.
  const isOfNamespace = status >= 500 && problem !== "" && problem !== "too-many-clients";
  const scope: Scope = isOfNamespace ? "namespace" : "server";
  switch (problem) {
    case "busy":
      return { kind: "Unavailable", retry: "fewer", scope };
    case "layout-ended":
    case "numbers-ended":
    case "too-many-namespaces":
    case "cross-site":
      return { kind: "Rejected", retry: "never", scope };
  }
  if (status === 400 && problem === "bad-count") {
    // The count exceeds the token's quota.
    return { kind: "Rejected", retry: "fewer", scope };
  }
  if (status === 404 && problem === "unknown-namespace") {
    return { kind: "UnknownNamespace", retry: "never", scope };
  }
  switch (status) {
    case 401:
      return { kind: "Unauthorized", retry: "never", scope };
    case 403:
      return { kind: "Forbidden", retry: "never", scope };
    case 429:
      return { kind: "OverQuota", retry: "elsewhere", scope };
  }
  if (status === 408 || (status >= 500 && status <= 599)) {
    return { kind: "Unavailable", retry: "elsewhere", scope };
  }
  return { kind: "Rejected", retry: "never", scope };
}

/**
 * Returns the server's Retry-After in ms: a number of seconds, or a date, which proxies send. A date counts from the Date of the
 * answer, so the clocks need not agree.
 */
export function retryAfter(text: string | undefined, date: string | undefined): number | undefined {
  const value = text?.trim() ?? "";
  if (/^[0-9]+$/.test(value)) {
    return Math.min(Number(value) * 1000, LONGEST_RETRY_AFTER);
  }
  const at = timeOf(value);
  if (at === undefined) {
    return undefined;
  }
  return Math.min(Math.max(at - (timeOf(date ?? "") ?? Date.now()), 0), LONGEST_RETRY_AFTER);
}

function timeOf(date: string): number | undefined {
  // Only the oldest of the three forms lacks the zone.
  const time = DATE.test(date) ? Date.parse(date.endsWith("GMT") ? date : `${date} GMT`) : NaN;
  return Number.isNaN(time) ? undefined : time;
}
