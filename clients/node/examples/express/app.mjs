// An HTTP service with Express on PostgreSQL. Each order gets an id of the namespace `orders`, each of its lines one of `default`.
import express from "express";

/** Creates the tables, and drops those that exist. */
export async function createTables(database) {
  await database.query(`
    DROP TABLE IF EXISTS lines;
    DROP TABLE IF EXISTS orders;
    CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL);
    CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders, item text NOT NULL);
  `);
}

export function createApp(client, database) {
  const orders = client.namespace("orders");
  const lines = client.namespace("default");
  const app = express();
  app.use(express.json());
  app.post("/orders", async (request, response) => {
    const { customer, items } = request.body;
    // Ids come before the transaction, so that no connection waits for them.
    const id = await orders.next();
    const lineIds = await lines.nextMany(items.length);
    await database.query(
      `WITH placed AS (INSERT INTO orders VALUES ($1, $2) RETURNING id)
       INSERT INTO lines SELECT line.id, placed.id, line.item FROM placed, unnest($3::bigint[], $4::text[]) AS line(id, item)`,
      [id, customer, lineIds, items],
    );
    response.status(201).json({ id, lines: lineIds });
  });
  app.get("/orders/:id", async (request, response) => {
    const { rows } = await database.query("SELECT id, customer FROM orders WHERE id = $1", [request.params.id]);
    response.status(rows.length === 0 ? 404 : 200).json(rows[0] ?? { error: "unknown order" });
  });
  return app;
}
