// Starts the service on a free port, posts orders, checks that all ids are distinct, and ends.
//
// SNOWMINT_SERVERS has the URLs of the nodes, with commas; DATABASE_URL that of a PostgreSQL database.
import assert from "node:assert/strict";
import { once } from "node:events";

import pg from "pg";

import { Client } from "../../dist/esm/index.js";
import { createApp, createTables } from "./app.mjs";

const ORDERS = 4000;
const CALLERS = 16;

const client = new Client({ servers: process.env.SNOWMINT_SERVERS.split(","), namespaceMaxAge: { orders: Infinity } });
const database = new pg.Pool({ connectionString: process.env.DATABASE_URL });
await createTables(database);
const server = createApp(client, database).listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${server.address().port}/orders`;

let posted = 0;
async function post() {
  while (posted < ORDERS) {
    const body = JSON.stringify({ customer: `c${posted++ % 100}`, items: ["tea", "milk"] });
    const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
    assert.equal(response.status, 201);
    const { id, lines } = await response.json();
    assert.ok(/^\d+$/.test(id) && lines.length === 2, JSON.stringify({ id, lines }));
    if (posted % 1000 === 0) {
      assert.equal((await (await fetch(`${url}/${id}`)).json()).id, id);
    }
  }
}
await Promise.all(Array.from({ length: CALLERS }, post));

const { rows } = await database.query("SELECT count(*)::int AS rows, count(DISTINCT id)::int AS distinct FROM orders");
console.log(JSON.stringify(rows[0]));
const lines = await database.query("SELECT count(DISTINCT id)::int AS distinct FROM lines");
assert.equal(lines.rows[0].distinct, 2 * ORDERS);

server.close();
server.closeAllConnections();
await database.end();
await client.close();
