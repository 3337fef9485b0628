// Orders with ids from `snowmint serve`, drawn by the stock Redis client. See README.md.

import { createServer } from 'node:http';
import { createClient } from 'redis';

const mint = createClient({
  url: process.env.SNOWMINT_URL ?? 'redis://localhost:6380',
  // Otherwise requests wait for as long as the connection is down.
  disableOfflineQueue: true,
});
mint.on('error', (error) => console.error(`mint: ${error.message}`));
await mint.connect();

// A reply with an id is a string, and stays one: Number(id) would round its last digits.
// node-redis does not retry a command after a lost connection, so this function does: at worst, an id remains unused.
async function nextId(tries = 5) {
  for (let wait = 50; ; wait *= 2) {
    try {
      return await mint.sendCommand(['ID.NEXT', 'default']);
    } catch (error) {
      if (--tries === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

const orders = new Map(); // stands for a database, with a BIGINT column for the id

async function answer(request) {
  const id = request.url.match(/^\/orders\/(\d+)$/)?.[1];
  if (request.method === 'POST' && request.url === '/orders') {
    const order = { id: await nextId() };
    orders.set(order.id, order);
    return [201, order];
  }
  if (id && orders.has(id)) {
    // The fields of the id, as a list of names and values.
    const parts = await mint.sendCommand(['ID.INSPECT', id]);
    const madeAt = Array.isArray(parts) ? parts[parts.indexOf('utc') + 1] : parts.utc;
    // To compute with an id, BigInt. Two ids compare as BigInts, or as strings of equal length.
    return [200, { id, madeAt, even: BigInt(id) % 2n === 0n }];
  }
  return [404, { error: 'no such order' }];
}

createServer(async (request, response) => {
  const [status, body] = await answer(request).catch((error) => [503, { error: `no ids now: ${error.message}` }]);
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}).listen(Number(process.env.PORT ?? 3000), '127.0.0.1');
