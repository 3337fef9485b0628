// Creates orders with Prisma Client, one by one, with nested lines, and many at once; checks that all ids are distinct, and ends.
//
// SNOWMINT_SERVERS has the URLs of the nodes, with commas; DATABASE_URL that of a PostgreSQL database. The tables `orders` and
// `lines` are dropped and created.
import assert from "node:assert/strict";

import { PrismaPg } from "@prisma/adapter-pg";
import { Prisma, PrismaClient } from "@prisma/client";
import pg from "pg";

import { Client } from "../../dist/esm/index.js";
import { snowmintIds } from "../../dist/esm/prisma.js";

const connectionString = process.env.DATABASE_URL;
const database = new pg.Client({ connectionString });
await database.connect();
await database.query(`
  DROP TABLE IF EXISTS lines;
  DROP TABLE IF EXISTS orders;
  CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL);
  CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders, item text NOT NULL);
`);

const client = new Client({ servers: process.env.SNOWMINT_SERVERS.split(","), namespaceMaxAge: { orders: Infinity } });
const models = { Order: client.bigints("orders"), Line: client.bigints("default") };
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString }) }).$extends(
  snowmintIds({ models, datamodel: Prisma.dmmf.datamodel }),
);

const order = await prisma.order.create({
  data: { customer: "c0", lines: { create: [{ item: "tea" }, { item: "milk" }] } },
  include: { lines: true },
});
assert.ok(typeof order.id === "bigint" && order.lines.length === 2 && order.lines[0].id !== order.lines[1].id);
for (let n = 1; n < 1000; n++) {
  await prisma.order.create({ data: { customer: `c${n}`, lines: { createMany: { data: [{ item: "tea" }] } } } });
}
const upserted = await prisma.order.upsert({ where: { id: 1n << 62n }, create: { customer: "new" }, update: {} });
assert.notEqual(upserted.id, 1n << 62n);
await prisma.order.update({ where: { id: upserted.id }, data: { lines: { create: { item: "tea" } } } });
await prisma.$transaction(async (transaction) => {
  const { count } = await transaction.order.createMany({
    data: Array.from({ length: 2999 }, (_, n) => ({ customer: `many${n}` })),
  });
  assert.equal(count, 2999);
});

const { rows } = await database.query("SELECT count(*)::int AS rows, count(DISTINCT id)::int AS distinct FROM orders");
console.log(JSON.stringify(rows[0]));
assert.equal(await prisma.line.count(), 1002);

await prisma.$disconnect();
await database.end();
await client.close();
