import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type TestContext } from "node:test";
import { inspect } from "node:util";

import { Client, type Options, SnowmintError } from "../src/index.js";
import { counting, serve } from "./http_server.js";

function open(t: TestContext, options: Options): Client {
  const client = new Client({ maxAge: Infinity, hedgeAfter: Infinity, timeout: 60_000, ...options });
  t.after(() => client.close());
  return client;
}

void test("strings and bigints come from the same ids", async (t) => {
  const client = open(t, { servers: [await serve(t, counting())] });
  const orders = client.namespace("orders");
  assert.equal(orders.name, "orders");
  assert.equal(client.namespace("orders"), orders);
  assert.equal(await orders.next(), "1");
  assert.equal(await client.bigints("orders").next(), 2n);
  assert.deepEqual(await client.bigints("orders").nextMany(2), [3n, 4n]);
  assert.equal(client.bigints("orders").tryNext(), 5n);
  assert.equal(orders.tryNext(), "6");
  assert.deepEqual(client.stats(), { requests: 1, hedged: 0, failed: 0, buffered: 11 });
  assert.equal(client.store, undefined);
});

void test("texts come from their own path", async (t) => {
  const paths: string[] = [];
  const ids = counting();
  const url = await serve(t, (request, response) => {
    paths.push(`${request.method ?? ""} ${request.url ?? ""}`.replace(/\?.*/, ""));
    ids(request, response);
  });
  const client = open(t, { servers: [`${url}/base//`], buffer: { min: 4, max: 4 } });
  const tickets = client.texts("tickets");
  assert.equal(await tickets.next(), "A-1");
  assert.deepEqual(await tickets.nextMany(6), ["A-2", "A-3", "A-4", "A-5", "A-6", "A-7"]);
  // A URL would drop this name.
  await client.namespace("..").next();
  assert.deepEqual([...new Set(paths)], ["POST /base/v1/ids/tickets", "POST /base/v1/ranges/.."]);
});

void test("an invalid name, and a closed client, are errors of each call", async (t) => {
  const client = open(t, { servers: ["http://127.0.0.1:1"] });
  for (const name of ["", "a/b", "é", "a".repeat(65), undefined as unknown as string, "\u001b[31m"]) {
    const invalid = (thrown: unknown) =>
      thrown instanceof SnowmintError && thrown.kind === "InvalidNamespace" && !thrown.message.includes("\u001b");
    await assert.rejects(client.namespace(name).next(), invalid);
    await assert.rejects(client.texts(name).nextMany(2), invalid);
    assert.throws(() => client.bigints(name).tryNext(), invalid);
  }
  await client.close();
  await client.close();
  await assert.rejects(client.namespace("orders").next(), { kind: "Closed", temporary: false });
  assert.throws(() => client.texts("orders").tryNext(), { kind: "Closed" });
  assert.equal(client.stats().requests, 0);
});

// Goal: an invalid option is an error that names it, without a token or a password.
void test("options are checked", () => {
  const empty = join(mkdtempSync(join(tmpdir(), "snowmint-")), "empty.pem");
  writeFileSync(empty, "");
  const cases: [options: Record<string, unknown>, says: RegExp][] = [
    [{ servers: undefined }, /name one with the option `servers`/],
    [{ servers: [] }, /name one with the option `servers`/],
    [{ servers: "http://localhost:1" }, /name one with the option `servers`/],
    [{ servers: ["localhost:8080"] }, /expected http/],
    [{ servers: ["redis://h:1"] }, /expected http/],
    [{ servers: ["http://"] }, /expected http/],
    [{ servers: ["http:///a"] }, /expected http/],
    [{ servers: ["http://:1"] }, /expected http/],
    [{ servers: [""] }, /expected http/],
    [{ servers: ["http://h\\u:hunter2@x"] }, /expected http/],
    [{ servers: ["http://h:1/\u001b[31m"] }, /expected http/],
    [{ servers: ["http://h:1\n"] }, /expected http/],
    [{ servers: [7] }, /expected http/],
    [{ servers: ["http://h:1/?"] }, /expected no query/],
    [{ servers: ["http://h:1/#a"] }, /expected no query/],
    [{ servers: ["http://u:hunter2@h:1"] }, /expected no user/],
    [{ servers: ["http://u:hunter2@h:x"] }, /expected http/],
    [{ order: "as_listed" }, /invalid order "as_listed": expected shuffled or asListed/],
    [{ token: "hunter2 x" }, /expected visible ASCII/],
    [{ token: "" }, /expected visible ASCII/],
    [{ token: "hunter2", tokenFile: "f" }, /not both/],
    [{ caFile: "/nowhere.pem" }, /cannot use caFile: .*\/nowhere.pem/],
    [{ caFile: empty }, /the file has no certificate/],
    [{ clientCertificate: { certFile: empty, keyFile: empty } }, /cannot use clientCertificate/],
    [{ clientCertificate: { certFile: empty } }, /expected certFile and keyFile/],
    [{ store: "prod" }, /invalid store "prod": expected smst_/],
    [{ timeout: 3_600_001 }, /invalid timeout 3600001: expected 1 ms to 1 h/],
    [{ timeout: 0 }, /expected 1 ms to 1 h/],
    [{ timeout: NaN }, /expected 1 ms to 1 h/],
    [{ timeout: "5s" }, /invalid timeout "5s"/],
    [{ hedgeAfter: 0 }, /invalid hedgeAfter 0/],
    [{ maxAge: 0.5 }, /invalid maxAge 0.5: expected at least 1 ms/],
    [{ namespaceMaxAge: { a: 0 } }, /invalid namespaceMaxAge of "a" 0/],
    [{ buffer: { min: 5, max: 4 } }, /invalid buffer \{"min":5,"max":4\}/],
    [{ buffer: { max: 1_000_001 } }, /invalid buffer/],
    [{ buffer: { min: 0.5 } }, /invalid buffer/],
    [{ max_age: 5 }, /invalid option "max_age": expected one of servers, order/],
  ];
  for (const [options, says] of cases) {
    assert.throws(
      () => new Client({ servers: ["http://localhost:1"], ...options }),
      (thrown) =>
        thrown instanceof SnowmintError &&
        thrown.kind === "InvalidOption" &&
        says.test(thrown.message) &&
        !inspect(thrown).includes("hunter2"),
      JSON.stringify(options),
    );
  }
  for (const server of ["http://localhost:8080", "HTTPS://[::1]:8080/", "http://10.0.0.1/base//"]) {
    new Client({ servers: [server], buffer: { min: 200_000 } });
  }
});

void test("a client that is shown has no token", async (t) => {
  const client = open(t, { servers: ["http://localhost:1"], token: "hunter2" });
  const ids = client.namespace("orders");
  assert.doesNotMatch(
    inspect([client, ids], { depth: 9, showHidden: true }) + JSON.stringify([client, ids]),
    /hunter2/,
  );
  await client.close();
});

// Goal: a server's text shows neither the token that it repeats, nor characters that control a terminal.
void test("the text of a server is made safe", async (t) => {
  const url = await serve(t, (request, response) => {
    const detail = `no ${request.headers.authorization ?? ""}\u001b[31m\u202ered ${"x".repeat(5000)}`;
    response.writeHead(403).end(JSON.stringify({ detail }));
  });
  const client = open(t, { servers: [url], token: " sm_hunter2\n" });
  await assert.rejects(client.namespace("a").next(), (thrown) => {
    assert.ok(thrown instanceof SnowmintError);
    assert.deepEqual([thrown.kind, thrown.status, thrown.server], ["Forbidden", 403, url]);
    assert.ok(!inspect(thrown).includes("hunter2"));
    assert.ok(thrown.message.includes(String.raw`no Bearer (token)\u{1b}[31m\u{202e}red xx`), thrown.message);
    assert.ok(thrown.message.length < 4500);
    return true;
  });
});

void test("a token file is read for each request", async (t) => {
  const tokens: (string | undefined)[] = [];
  const ids = counting();
  const url = await serve(t, (request, response) => {
    tokens.push(request.headers.authorization);
    ids(request, response);
  });
  const tokenFile = join(mkdtempSync(join(tmpdir(), "snowmint-")), "token");
  const orders = open(t, { servers: [url], tokenFile, buffer: { max: 0 } }).namespace("orders");
  writeFileSync(tokenFile, "sm_first\n");
  await orders.next();
  writeFileSync(tokenFile, "sm_second");
  await orders.next();
  assert.deepEqual(tokens, ["Bearer sm_first", "Bearer sm_second"]);
  writeFileSync(tokenFile, "two words");
  await assert.rejects(orders.next(), { kind: "Unauthorized", status: undefined });
});

void test("requests share a connection", async (t) => {
  const ports = new Set<number | undefined>();
  const ids = counting();
  const url = await serve(t, (request, response) => {
    ports.add(request.socket.remotePort);
    ids(request, response);
  });
  const orders = open(t, { servers: [url], buffer: { max: 0 } }).namespace("orders");
  for (let n = 0; n < 5; n++) {
    await orders.next();
  }
  assert.equal(ports.size, 1);
});

// Goal: what a server sends twice on one connection is used once, and an error is not the answer to the next request.
// Method: the second copy comes when the next request is on its way.
for (const status of [200, 503]) {
  void test(`an answer of status ${String(status)} that is sent twice is used once`, async (t) => {
    const answers: string[] = [];
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      let last = "";
      socket.on("error", () => undefined);
      socket.on("data", () => {
        const id = answers.length + 1;
        const body = `{"ranges":[{"first":"${String(id)}","count":1,"step":"1"}]}`;
        const head = `HTTP/1.1 ${String(answers.length === 0 ? status : 200)} X\r\ncontent-length: ${String(body.length)}\r\n\r\n`;
        answers.push(head + body);
        socket.write(last === "" ? head + body : last);
        last = head + body;
      });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    const url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
    const orders = open(t, { servers: [url], buffer: { max: 0 } }).namespace("orders");
    const first = await orders.next();
    assert.deepEqual([first, connections], status === 200 ? ["1", 1] : ["2", 2]);
    assert.notEqual(await orders.next(), first);
  });
}

// Goal: an answer that names another request is none of this one, whatever its status; one that names none counts.
void test("an answer to another request is dropped", async (t) => {
  const sent = new Set<unknown>();
  const ids = counting();
  const url = await serve(t, (request, response) => {
    const id = request.headers["snowmint-request"];
    assert.ok(typeof id === "string" && /^[0-9a-f]{16}-[0-9]+$/.test(id) && !sent.has(id));
    sent.add(id);
    if (sent.size !== 4) {
      response.setHeader("snowmint-request", sent.size < 3 ? "another" : id);
    }
    response.statusCode = sent.size === 2 ? 403 : 200;
    ids(request, response);
  });
  const orders = open(t, { servers: [url], buffer: { max: 0 } }).namespace("orders");
  assert.equal(await orders.next(), "3");
  assert.equal(await orders.next(), "4");
  assert.equal(sent.size, 4);
});

// Goal: a server that repeats the headers of a request, such as an echo service, puts no token into an error.
void test("an answer that repeats the token is not shown", async (t) => {
  for (const answer of [
    (token: string) => token,
    (token: string) => `{"ranges":[{"first":"${token}","count":1,"step":"1"}]}`,
    (token: string) => `{"ranges":[{"first":"${"x".repeat(175)}${token}","count":1,"step":"1"}]}`,
  ]) {
    const url = await serve(t, (request, response) => {
      response.end(answer(request.headers.authorization ?? ""));
    });
    const orders = open(t, { servers: [url], token: "hunter2", timeout: 100 }).namespace("orders");
    await assert.rejects(
      orders.next(),
      (thrown) => String(thrown).includes("invalid answer") && !inspect(thrown).includes("hunt"),
    );
  }
  const url = await serve(t, (request, response) => {
    response.setHeader("snowmint-store", request.headers.authorization ?? "");
    counting()(request, response);
  });
  const store = `smst_${"0".repeat(26)}`;
  const orders = open(t, { servers: [url], token: "hunter2", timeout: 100, store }).namespace("orders");
  await assert.rejects(orders.next(), (thrown) => !inspect(thrown).includes("hunt"));
});

// Goal: a request that was given up while its token was read opens no connection.
void test("a closed client opens no connection", async (t) => {
  let connections = 0;
  const server = createServer(() => connections++).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const tokenFile = join(mkdtempSync(join(tmpdir(), "snowmint-")), "token");
  writeFileSync(tokenFile, "sm_1");
  const url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  const client = open(t, { servers: [url], tokenFile });
  const call = client.namespace("orders").next();
  await Promise.resolve();
  assert.equal(client.stats().requests, 1);
  await client.close();
  await assert.rejects(call, { kind: "Closed" });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(connections, 0);
});
