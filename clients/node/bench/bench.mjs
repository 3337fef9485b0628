// Measures calls for one id: of Snowmint, and of generators that run in the process. It prints one line of JSON a row, with the best
// of several runs. Build the client first (`../check.sh`).
//
// SNOWMINT_SERVER is the URL of a server with the namespaces `orders` (a segment, numbers) and `default` (a snowflake layout).
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { setImmediate } from "node:timers/promises";

import { Snowflake as Sapphire } from "@sapphire/snowflake";

import { Client } from "../dist/esm/index.js";

const require = createRequire(import.meta.url);
const { Snowflake } = require("nodejs-snowflake");
const { Worker } = require("snowflake-uuid");
const { SnowflakeIdv1: Flake } = require("simple-flakeid");

const RUNS = 5;
/** About how long a run takes, in ms. */
const RUN_TIME = 300;
/** The number of calls at a steady rate, for p99.9, and the time between them in ms. */
const PACED_CALLS = 100_000;
const PACE = 0.01;

const client = new Client({ servers: [process.env.SNOWMINT_SERVER], namespaceMaxAge: { orders: Infinity } });
const orders = client.namespace("orders");
const ids = client.namespace("default");
const bigints = client.bigints("orders");
const sapphire = new Sapphire(new Date("2024-01-01"));
const native = new Snowflake({ custom_epoch: 1_700_000_000_000, instance_id: 1 });
const worker = new Worker(1, 1);
const flake = new Flake({ workerId: 1 });

// Calls that return a promise are awaited, the others are not. `isPaced`: at 100,000 calls a second too.
const rows = [
  { row: "snowmint next(), numbers", isAsync: true, isPaced: true, next: () => orders.next() },
  { row: "snowmint next(), snowflake", isAsync: true, isPaced: true, next: () => ids.next() },
  { row: "snowmint next(), numbers, bigint", isAsync: true, next: () => bigints.next() },
  { row: "snowmint tryNext(), numbers", next: () => orders.tryNext(), isIncomplete: true },
  { row: "snowmint tryNext(), snowflake", next: () => ids.tryNext(), isIncomplete: true },
  { row: "await of a promise alone", isAsync: true, next: () => Promise.resolve("") },
  { row: "crypto.randomUUID()", next: () => randomUUID() },
  { row: "nodejs-snowflake, bigint", next: () => native.getUniqueID() },
  { row: "@sapphire/snowflake, bigint", next: () => sapphire.generate() },
  { row: "snowflake-uuid, bigint", next: () => worker.nextId() },
  { row: "simple-flakeid, bigint", next: () => flake.NextBigId() },
];

/** Keeps the last ids, so that no call is optimized away. */
const kept = new Array(1024);

/** Makes so many calls, and returns ns for each. */
async function run({ isAsync = false, isIncomplete = false, next }, calls) {
  let time = 0;
  let made = 0;
  while (made < calls) {
    const began = performance.now();
    let n = made;
    if (isAsync) {
      for (; n < calls; n++) {
        kept[n & 1023] = await next();
      }
    } else {
      for (; n < calls; n++) {
        const id = next();
        if (id === null) {
          break;
        }
        kept[n & 1023] = id;
      }
    }
    if (n > made) {
      time += performance.now() - began;
    }
    made = n;
    if (isIncomplete && made < calls) {
      // The refill is measured with next(), which waits for it.
      await setImmediate();
    }
  }
  return (time * 1e6) / calls;
}

async function measure(row) {
  let calls = 1000;
  let best = Infinity;
  // The first runs warm up, and find out how many calls a run takes.
  for (let n = 0; n < RUNS; ) {
    const each = await run(row, calls);
    if (each * calls < (RUN_TIME / 2) * 1e6) {
      calls *= 2;
      continue;
    }
    best = Math.min(best, each);
    n++;
  }
  return best;
}

/** Returns the p99.9 of a call in µs at 100,000 calls a second. */
async function paced({ next }) {
  const latencies = new Float64Array(PACED_CALLS);
  let due = performance.now();
  for (let n = 0; n < PACED_CALLS; n++) {
    due += PACE;
    // Node.js reads no socket while a loop runs, so the loop lets it.
    do {
      await setImmediate();
    } while (performance.now() < due);
    const began = performance.now();
    await next();
    latencies[n] = performance.now() - began;
  }
  latencies.sort();
  return latencies[Math.floor(PACED_CALLS * 0.999)] * 1000;
}

for (const row of rows) {
  const result = { row: row.row, ns: round(await measure(row)) };
  if (row.isPaced) {
    let best = Infinity;
    for (let n = 0; n < RUNS; n++) {
      best = Math.min(best, await paced(row));
    }
    result.p999_us = round(best);
  }
  console.log(JSON.stringify(result));
}
await client.close();

function round(value) {
  return Math.round(value * 10) / 10;
}
