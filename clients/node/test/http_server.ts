import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import type { TestContext } from "node:test";

/** Starts a server on a free port, until the end of the test. Returns its port. */
export async function listen(t: TestContext, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

/** Starts an HTTP server with these answers. Returns its URL. */
export async function serve(t: TestContext, answer: RequestListener): Promise<string> {
  return `http://127.0.0.1:${String(await listen(t, createServer(answer)))}`;
}

/** Returns an answer with as many ids as requested, from 1 on, each once. */
export function counting(): (request: IncomingMessage, response: ServerResponse) => void {
  let next = 1;
  return (request, response) => {
    const url = new URL(request.url ?? "", "http://localhost");
    const count = Number(url.searchParams.get("count"));
    const first = next;
    next += count;
    const ids = Array.from({ length: count }, (_, index) => `A-${String(first + index)}`);
    const ranges = [{ first: String(first), count, step: "1" }];
    response.end(JSON.stringify(url.pathname.includes("/v1/ids/") ? { ids } : { ranges }));
  };
}
