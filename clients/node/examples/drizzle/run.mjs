// Inserts orders with Drizzle ORM, many at once and one by one; checks that all ids are distinct, and ends.
//
// SNOWMINT_SERVERS has the URLs of the nodes, with commas; DATABASE_URL that of a PostgreSQL database. The table `orders` is dropped
// and created.
import assert from "node:assert/strict";

import { countDistinct, count } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";

import { defaultId, withIds } from "../../dist/esm/drizzle.js";
import { Client } from "../../dist/esm/index.js";

const client = new Client({
  servers: process.env.SNOWMINT_SERVERS.split(","),
  namespaceMaxAge: { orders: Infinity },
  buffer: { min: 1000 },
});
const ids = client.bigints("orders");
const orders = pgTable("orders", {
  id: bigint({ mode: "bigint" }).primaryKey().$defaultFn(defaultId(ids)),
  customer: text().notNull(),
});

const database = new pg.Pool({ connectionString: process.env.DATABASE_URL });
await database.query(`
  DROP TABLE IF EXISTS lines;
  DROP TABLE IF EXISTS orders;
  CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL);
`);
const db = drizzle(database);

// Waits for ids, so any number of rows may be inserted.
const rows = Array.from({ length: 3000 }, (_, n) => ({ customer: `many${n}` }));
await db.insert(orders).values(await withIds(ids, rows));
// The default does not wait: ids must be in memory. Here one call waits for the first ones.
await ids.next();
for (let n = 0; n < 1000; n++) {
  const [order] = await db
    .insert(orders)
    .values({ customer: `c${n}` })
    .returning();
  assert.equal(typeof order.id, "bigint");
}

const [result] = await db.select({ rows: count(), distinct: countDistinct(orders.id) }).from(orders);
console.log(JSON.stringify(result));

await database.end();
await client.close();
