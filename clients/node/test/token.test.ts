import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { fileToken } from "../src/token.js";

// Goal: while a read of the file hangs, no other one begins, and each request fails at its end.
// Method: a named pipe hangs until somebody writes to it.
void test("a file system that hangs has one read", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "snowmint-")), "token");
  execFileSync("mkfifo", [file]);
  const token = fileToken(file);
  const first = token(new AbortController().signal);
  const controller = new AbortController();
  const waiting = Array.from({ length: 3 }, () => token(controller.signal));
  controller.abort();
  for (const read of waiting) {
    await assert.rejects(read, /not read in time/);
  }
  writeFileSync(file, "sm_1\n");
  assert.equal(await first, "sm_1");
});

// Goal: a wrong file, which may have no end, does not fill the memory.
void test("a token file is not read beyond what a header can have", { timeout: 5000 }, async () => {
  await assert.rejects(fileToken("/dev/zero")(new AbortController().signal), /expected one token/);
});
