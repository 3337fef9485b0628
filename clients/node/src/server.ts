import type { RequestOptions } from "node:http";
import { urlToHttpOptions } from "node:url";

import { invalidOption } from "./errors.js";

/** A server, and how to connect to it. */
export interface Server {
  /** The URL as in the options, without a slash at its end. */
  readonly url: string;
  readonly address: Pick<RequestOptions, "protocol" | "hostname" | "port">;
  /** The path before `/v1`. */
  readonly path: string;
}

/** Reads the URL of a server. */
export function server(text: unknown): Server {
  const form = "http://HOST:PORT or https://HOST:PORT";
  // `new URL` drops tabs and line breaks, and reads a backslash as a slash.
  const isWritten = typeof text === "string" && /^https?:\/\/[^/]/i.test(text) && !/[\p{C}\p{Z}\\]/u.test(text);
  const parsed = isWritten ? urlOf(text) : undefined;
  if (!isWritten || parsed === undefined) {
    // No error shows the text: it may contain a password.
    throw invalidOption("server URL", "", form);
  }
  if (parsed.username !== "" || parsed.password !== "") {
    throw invalidOption("server", parsed.host, "no user and password: set a token with the option `token`");
  }
  if (/[?#]/.test(text)) {
    throw invalidOption("server", parsed.host, "no query");
  }
  const { protocol, hostname, port } = urlToHttpOptions(parsed);
  return {
    url: text.replace(/\/+$/, ""),
    address: { protocol, hostname, port },
    path: parsed.pathname.replace(/\/+$/, ""),
  };
}

function urlOf(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}
