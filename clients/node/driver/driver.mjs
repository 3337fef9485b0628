// The driver drives the Node.js client for the conformance kit: it reads commands from standard input, and writes answers to
// standard output. Build the client first (`./check.sh`).
import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import { Client, SnowmintError } from "../dist/esm/index.js";

/** Reads a time; null is unlimited. */
const time = (ms) => (ms === null ? Infinity : ms);

function open(options) {
  const { client_certificate: certificate, namespace_max_age_ms: ages, buffer } = options;
  return new Client({
    servers: options.servers,
    order: options.order === "as_listed" ? "asListed" : undefined,
    token: options.token,
    tokenFile: options.token_file,
    caFile: options.ca_file,
    clientCertificate: certificate && { certFile: certificate[0], keyFile: certificate[1] },
    store: options.store,
    timeout: options.timeout_ms,
    hedgeAfter: time(options.hedge_after_ms),
    maxAge: time(options.max_age_ms),
    namespaceMaxAge: ages && Object.fromEntries(Object.entries(ages).map(([name, age]) => [name, time(age)])),
    buffer: buffer && { min: buffer[0], max: buffer[1] },
  });
}

/** Returns an error as the kit reads it. */
function failed(error) {
  if (!(error instanceof SnowmintError)) {
    throw error;
  }
  const { kind, temporary, server = null, status = null, retryAfter, message } = error;
  return {
    kind,
    temporary,
    server,
    status,
    retry_after_ms: retryAfter === undefined ? null : Math.round(retryAfter),
    message,
  };
}

async function run(client, command) {
  const ids = command.texts ? client.texts(command.namespace) : client.namespace(command.namespace);
  switch (command.op) {
    case "next":
      return { ids: command.count === undefined ? [await ids.next()] : await ids.nextMany(command.count) };
    case "try_next": {
      const id = ids.tryNext();
      return { ids: id === null ? [] : [id] };
    }
    case "buffered":
      return { buffered: ids.buffered };
    case "discard_buffered":
      return ids.discardBuffered();
    case "stats":
      return client.stats();
    case "store":
      return { store: client.store ?? null };
    case "fork":
      // Node.js starts a new program in a child.
      return { unsupported: true };
    case "draw":
      return draw(ids, command);
    case "bench":
      return bench(ids, command.count ?? 1_000_000);
    default:
      throw new Error(`unknown command ${command.op}`);
  }
}

/** Draws ids in tasks, one a call, into a file. */
async function draw(ids, { threads, each, to }) {
  const drawn = new BigUint64Array(threads * each);
  let count = 0;
  let errors = 0;
  let first = null;
  const task = async () => {
    for (let n = 0; n < each; n++) {
      try {
        const id = await ids.next();
        drawn[count++] = BigInt(id);
      } catch (error) {
        errors++;
        first ??= failed(error);
      }
    }
  };
  await Promise.all(Array.from({ length: threads }, task));
  await writeFile(to, new Uint8Array(drawn.buffer, 0, 8 * count));
  return { drawn: count, errors, first_error: first };
}

/** Measures calls for one id, one after the other. */
async function bench(ids, count) {
  // The buffer grows with the use.
  for (let n = 0; n < count / 10; n++) {
    await ids.next();
  }
  const began = performance.now();
  for (let n = 0; n < count; n++) {
    await ids.next();
  }
  const took = performance.now() - began;
  const each = new Float64Array(Math.min(count, 100_000));
  for (let n = 0; n < each.length; n++) {
    const began = performance.now();
    await ids.next();
    each[n] = performance.now() - began;
  }
  each.sort();
  return { ns_each: (took * 1e6) / count, p999_us: each[Math.floor(each.length * 0.999)] * 1000 };
}

// The kit expects a client to be there before the first one is opened: a closed one.
let client = new Client({ servers: ["http://localhost"] });
await client.close();

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const reply = (answer) => process.stdout.write(`${JSON.stringify({ ...answer, id: command.id })}\n`);
  try {
    if (command.op === "open") {
      client = open(command.options);
      reply({});
    } else if (command.op === "close") {
      await client.close();
      reply({});
    } else {
      run(client, command).then(reply, (error) => reply({ error: failed(error) }));
    }
  } catch (error) {
    reply({ error: failed(error) });
  }
}
