import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import test, { type TestContext } from "node:test";

import { Client, type Options } from "../src/index.js";
import { counting, listen } from "./http_server.js";

interface Pair {
  readonly certFile: string;
  readonly keyFile: string;
}

/** Makes a certificate for 127.0.0.1 that trusts itself. */
function certificate(folder: string, name: string): Pair {
  const pair = { certFile: join(folder, `${name}.pem`), keyFile: join(folder, `${name}.key`) };
  const subject = ["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"];
  const files = ["-keyout", pair.keyFile, "-out", pair.certFile];
  execFileSync(
    "openssl",
    ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", ...subject, ...files],
    { stdio: "pipe" },
  );
  return pair;
}

async function next(t: TestContext, port: number, options: Partial<Options>): Promise<string> {
  const client = new Client({ servers: [`https://127.0.0.1:${String(port)}`], timeout: 20_000, ...options });
  t.after(() => client.close());
  return client.namespace("orders").next();
}

void test("certificates of both sides", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "snowmint-"));
  const [server, client, other] = ["server", "client", "other"].map((name) => certificate(folder, name)) as [
    Pair,
    Pair,
    Pair,
  ];
  const files = { cert: readFileSync(server.certFile), key: readFileSync(server.keyFile) };

  await t.test("the client trusts a server of caFile, and no other", async (t) => {
    const port = await listen(t, createServer(files, counting()));
    assert.equal(await next(t, port, { caFile: server.certFile }), "1");
    await assert.rejects(next(t, port, { caFile: other.certFile }), { kind: "InvalidCertificate", temporary: false });
    await assert.rejects(next(t, port, {}), { kind: "InvalidCertificate" });
  });

  await t.test("NODE_TLS_REJECT_UNAUTHORIZED does not turn the check off", async (t) => {
    const port = await listen(t, createServer(files, counting()));
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    t.after(() => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    });
    await assert.rejects(next(t, port, { caFile: other.certFile }), { kind: "InvalidCertificate" });
  });

  await t.test("a server that requires a certificate gets the client's", async (t) => {
    const ca = readFileSync(client.certFile);
    const port = await listen(
      t,
      createServer({ ...files, ca, requestCert: true, rejectUnauthorized: true }, counting()),
    );
    assert.equal(await next(t, port, { caFile: server.certFile, clientCertificate: client }), "1");
    await assert.rejects(next(t, port, { caFile: server.certFile }), { kind: "InvalidCertificate" });
  });

  // Node.js as a server closes the connection without an alert; OpenSSL sends one.
  for (const version of ["-tls1_2", "-tls1_3"]) {
    await t.test(`a server that does not trust the client's certificate, ${version}`, async (t) => {
      const pair = ["-cert", server.certFile, "-key", server.keyFile];
      const verify = ["-Verify", "1", "-verify_return_error", "-CAfile", client.certFile];
      const openssl = spawn("openssl", ["s_server", "-accept", "127.0.0.1:0", version, ...pair, ...verify]);
      t.after(() => openssl.kill());
      for await (const line of createInterface({ input: openssl.stdout })) {
        const port = /^ACCEPT .*:(\d+)$/.exec(line)?.[1];
        if (port !== undefined) {
          const call = next(t, Number(port), { caFile: server.certFile, clientCertificate: other });
          await assert.rejects(call, { kind: "InvalidCertificate" });
          return;
        }
      }
      assert.fail("openssl does not listen");
    });
  }
});
