import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import test from "node:test";

import { systemClock } from "../src/clock.js";

void test("a timer is never early, and does not run after its end", async () => {
  for (const ms of [0, 0.4, 1, 5.5]) {
    const began = performance.now();
    await new Promise<void>((resolve) => systemClock.after(ms, resolve, true));
    assert.ok(performance.now() - began >= ms);
  }
  let runs = 0;
  systemClock.after(1, () => runs++).cancel();
  await new Promise<void>((resolve) => systemClock.after(20, resolve, true));
  assert.equal(runs, 0);
});

// Goal: input that arrived while the program blocked the event loop comes before the timer that became due meanwhile.
void test("a timer lets input in first", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const client = createConnection((server.address() as AddressInfo).port, "127.0.0.1");
  const [other] = await accepted;
  t.after(() => {
    client.destroy();
    other.destroy();
    server.close();
  });
  const events: string[] = [];
  client.once("data", () => events.push("data"));
  await new Promise<void>((resolve) => {
    systemClock.after(5, () => {
      events.push("timer");
      resolve();
    });
    // The kernel delivers at once on a loopback connection.
    other.write("x");
    for (const began = performance.now(); performance.now() - began < 30; );
  });
  assert.deepEqual(events, ["data", "timer"]);
});
