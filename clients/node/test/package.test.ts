import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "node:test";
import { promisify } from "node:util";

import { VERSION } from "../src/index.js";
import { counting, serve } from "./http_server.js";

const run = promisify(execFile);

void test("the version is that of the package", () => {
  assert.equal((JSON.parse(readFileSync("package.json", "utf8")) as { version: string }).version, VERSION);
});

/** What a program does with a client, until it ends by itself. */
const program = `
  const client = new Client({ servers: [process.argv[1]], buffer: { min: 10, max: 10 }, timeout: 600_000 });
  const ids = client.namespace("orders");
  console.log(await ids.next());
  await ids.nextMany(8);
  while (client.stats().requests < 2) await new Promise(setImmediate);
  await new Promise(setImmediate);
  console.log(process.getActiveResourcesInfo().filter((name) => /^(TCP|Timeout)/.test(name)).join());
`;

// Goal: the published package works with import and require, and neither a connection nor a request in the background keeps a
// program running.
// Method: the server never answers the second request, which fills the buffer.
for (const [kind, start] of [
  ["import", `import { Client } from "snowmint"; ${program}`],
  ["require", `const { Client } = require("snowmint"); (async () => { ${program} })();`],
] as const) {
  void test(`a program with ${kind} ends by itself`, async (t) => {
    const ids = counting();
    let requests = 0;
    const url = await serve(t, (request, response) => {
      if (++requests === 1) {
        ids(request, response);
      }
    });
    const type = kind === "import" ? ["--input-type=module"] : ["--input-type=commonjs"];
    const { stdout } = await run(process.execPath, [...type, "-e", start, url], { timeout: 60_000 });
    assert.equal(stdout, "1\n\n");
    assert.equal(requests, 2);
  });
}

// Goal: a call that waits keeps the program running until its end.
void test("a program waits for ids", async (t) => {
  const ids = counting();
  const url = await serve(t, (request, response) => {
    setTimeout(() => {
      ids(request, response);
    }, 300);
  });
  const start = `import { Client } from "snowmint"; ${program}`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", start, url], { timeout: 60_000 });
  assert.equal(stdout, "1\n\n");
});
