import { randomBytes } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";

import { readAnswer } from "./answer.js";
import { isAboutCertificates } from "./certificates.js";
import type { Clock, Instant } from "./clock.js";
import { messageOf } from "./errors.js";
import { type Failure, unavailable } from "./failure.js";
import { meaning, retryAfter } from "./meaning.js";
import type { Server } from "./server.js";
import { LONGEST_MESSAGE, shown } from "./shown.js";
import type { Span } from "./span.js";
import type { Token } from "./token.js";
import { VERSION } from "./version.js";

/** Limits in bytes: an answer without its ids, one id, an error. All are more than a server sends. */
const LONGEST_FRAME = 1024;
const LONGEST_ID = 128;
const LONGEST_ERROR = 16 * 1024;
/** The timeout of connecting to a server in ms, before TLS. */
const CONNECT_TIMEOUT = 1000;

/** A request for ids. */
export interface IdRequest {
  readonly namespace: string;
  readonly isText: boolean;
  readonly count: number;
  /** How many ms the server may take to make the ids. */
  readonly wait: number;
  /** When the ids will be too old to return. */
  readonly until: Instant;
  /** Aborted when nobody awaits the reply any more. */
  readonly signal: AbortSignal;
}

/** The ids of a valid answer. */
export interface Granted {
  readonly spans: Span[];
  /** The identity of the store behind the ids; "" if the server did not name it. */
  readonly store: string;
}

/** Sends one request to one server, and checks its answer. */
export type Send = (server: Server, request: IdRequest) => Promise<Granted | Failure>;

/** Returns the connections to all servers, as agents say how to connect. */
export function httpSend(agents: { http: http.Agent; https: https.Agent }, token: Token, clock: Clock): Send {
  return async (server, request) => {
    let authorization: string;
    try {
      authorization = await token(request.signal);
    } catch (thrown) {
      return { server: server.url, kind: "Unauthorized", retry: "never", scope: "server", detail: messageOf(thrown) };
    }
    if (request.signal.aborted) {
      // The agent would connect nevertheless, and keep the connection.
      return unavailable(server.url, "request abandoned");
    }
    return new Promise((resolve) => {
      const isTls = server.address.protocol === "https:";
      const id = newRequestId();
      // No module of Node.js follows a redirect here, or repeats a request.
      const outgoing = (isTls ? https : http).request({
        ...server.address,
        agent: isTls ? agents.https : agents.http,
        method: "POST",
        path: pathOf(server, request),
        headers: {
          "content-length": 0,
          "user-agent": `snowmint-node/${VERSION}`,
          "snowmint-request": id,
          ...(authorization === "" ? {} : { authorization: `Bearer ${authorization}` }),
        },
        signal: request.signal,
      });
      outgoing.on("socket", (socket) => {
        // A waiting call keeps the process running, not a connection.
        socket.unref();
        limitConnecting(socket, outgoing, clock);
      });
      outgoing.on("error", (error) => {
        resolve(unsent(server.url, error));
      });
      outgoing.on("response", (response) => {
        if ((response.headers["snowmint-request"] ?? id) !== id) {
          resolve(unavailable(server.url, "invalid answer: it belongs to another request"));
          outgoing.destroy();
          return;
        }
        read(server.url, response, request, authorization, resolve);
      });
      outgoing.on("close", () => {
        resolve(unavailable(server.url, "connection closed"));
      });
      outgoing.end();
    });
  };
}

const PROCESS = randomBytes(8).toString("hex");
let sent = 0;

/**
 * Returns a text that no other request has, of this process or another one: a proxy that sends an answer twice would otherwise
 * answer the next request with it.
 */
function newRequestId(): string {
  return `${PROCESS}-${String(++sent)}`;
}

function pathOf(server: Server, { namespace, isText, count, wait }: IdRequest): string {
  // A URL would drop the name "..".
  const query = `count=${String(count)}&wait=${(wait / 1000).toFixed(3)}`;
  return `${server.path}/v1/${isText ? "ids" : "ranges"}/${namespace}?${query}`;
}

function limitConnecting(socket: Socket, outgoing: http.ClientRequest, clock: Clock): void {
  if (socket.connecting) {
    const timer = clock.after(CONNECT_TIMEOUT, () => {
      outgoing.destroy(new Error(`no connection within ${String(CONNECT_TIMEOUT)} ms`));
    });
    socket.once("connect", () => {
      timer.cancel();
    });
    outgoing.once("close", () => {
      timer.cancel();
    });
  }
}

/** Returns the failure of a connection or request. */
function unsent(server: string, error: Error): Failure {
  const detail = shown(messageOf(error).trim(), LONGEST_MESSAGE);
  if (isAboutCertificates(error)) {
    return { server, detail, kind: "InvalidCertificate", retry: "afterRepair", scope: "server" };
  }
  return unavailable(server, detail);
}

/** Reads the answer of a server, and calls `done` once. */
function read(
  server: string,
  response: http.IncomingMessage,
  request: IdRequest,
  token: string,
  done: (reply: Granted | Failure) => void,
): void {
  const { socket, statusCode: status = 0, headers } = response;
  const limit = status === 200 ? request.count * LONGEST_ID + LONGEST_FRAME : LONGEST_ERROR;
  const end = (body: Buffer | string) => {
    const reply =
      status === 200
        ? granted(server, socket, headers, body, request, token)
        : refusal(server, status, headers, body, token);
    if (!("spans" in reply)) {
      // If a server sends an error twice, the second one must not be the answer to the next request.
      socket.destroy();
    }
    done(reply);
  };
  const chunks: Buffer[] = [];
  let length = 0;
  response.on("data", (chunk: Buffer) => {
    length += chunk.length;
    chunks.push(chunk);
    if (length > limit) {
      chunks.length = 0;
      response.removeAllListeners("data");
      end(`invalid answer: more than ${String(limit)} bytes`);
    }
  });
  response.on("end", () => {
    end(Buffer.concat(chunks));
  });
  response.on("error", (error) => {
    end(`broken answer: ${messageOf(error)}`);
  });
}

/** The last answer of each connection. */
const lastAnswers = new WeakMap<Socket, Buffer>();

/** Returns the ids of an answer. The body is a text if it cannot be used. */
function granted(
  server: string,
  socket: Socket,
  headers: http.IncomingHttpHeaders,
  body: Buffer | string,
  { count, isText, until }: IdRequest,
  token: string,
): Granted | Failure {
  if (typeof body === "string") {
    return unavailable(server, body);
  }
  if (lastAnswers.get(socket)?.equals(body) === true) {
    return unavailable(server, "invalid answer: it is equal to the one before on the connection");
  }
  lastAnswers.set(socket, body);
  const spans = readAnswer(body, isText, count, until);
  if (typeof spans === "string") {
    return unavailable(server, `invalid answer: ${spans}`);
  }
  const named = headers["snowmint-store"];
  const store = typeof named === "string" ? named : "";
  if (token !== "" && store.includes(token)) {
    // The store becomes part of errors.
    return unavailable(server, "invalid answer: its store contains the token");
  }
  return { spans, store };
}

/** Reads why a server returned no ids. */
function refusal(
  server: string,
  status: number,
  headers: http.IncomingHttpHeaders,
  body: Buffer | string,
  token: string,
): Failure {
  const { type, detail } = readProblem(body);
  const problem = type.startsWith("urn:snowmint:") ? type.slice("urn:snowmint:".length) : "";
  const said = token === "" ? detail : detail.replaceAll(token, "(token)");
  const text = said === "" ? (http.STATUS_CODES[status] ?? "") : shown(said, LONGEST_MESSAGE);
  const failure = { server, status, detail: `status ${String(status)}: ${text}`, ...meaning(status, problem) };
  return failure.retry === "elsewhere"
    ? { ...failure, retryAfter: retryAfter(headers["retry-after"], headers.date) }
    : failure;
}

/** Reads a problem document. Without a readable one, the status alone is the error. */
function readProblem(body: Buffer | string): { type: string; detail: string } {
  try {
    const problem: unknown = typeof body === "string" ? undefined : JSON.parse(body.toString());
    const { type, detail } = (problem ?? {}) as { type?: unknown; detail?: unknown };
    return { type: typeof type === "string" ? type : "", detail: typeof detail === "string" ? detail : "" };
  } catch {
    return { type: "", detail: "" };
  }
}
