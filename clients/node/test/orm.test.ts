import assert from "node:assert/strict";
import test from "node:test";

import { defaultId, withIds } from "../src/drizzle.js";
import type { Ids } from "../src/ids.js";
import { snowmintIds } from "../src/prisma.js";

/** Ids from 1 on; `calls` has the counts that were drawn. */
function testIds(name: string): Ids<bigint> & { calls: number[] } {
  let next = 1n;
  const calls: number[] = [];
  return {
    name,
    calls,
    buffered: 0,
    next: () => Promise.resolve(next++),
    nextMany: (count) => {
      calls.push(count);
      return Promise.resolve(Array.from({ length: count }, () => next++));
    },
    tryNext: () => (next > 3n ? null : next++),
    discardBuffered: () => undefined,
  };
}

const datamodel = {
  models: [
    {
      name: "Order",
      fields: [
        { name: "id", kind: "scalar", type: "BigInt" },
        { name: "lines", kind: "object", type: "Line" },
      ],
    },
    {
      name: "Line",
      fields: [
        { name: "lineId", kind: "scalar", type: "BigInt" },
        { name: "order", kind: "object", type: "Order" },
        { name: "tag", kind: "object", type: "Tag" },
      ],
    },
  ],
};

void test("the extension fills ids where rows are created, and nowhere else", async () => {
  for (const [operation, args, expected] of [
    ["create", { data: { item: "a" }, select: { id: true } }, { data: { item: "a", id: 1n }, select: { id: true } }],
    ["create", { data: { id: 7n } }, { data: { id: 7n } }],
    ["create", { data: { id: null } }, { data: { id: 1n } }],
    ["createMany", { data: [{}, { id: 7n }, {}] }, { data: [{ id: 1n }, { id: 7n }, { id: 2n }] }],
    ["createManyAndReturn", { data: {} }, { data: { id: 1n } }],
    [
      "upsert",
      { where: {}, create: {}, update: { item: "b" } },
      { where: {}, create: { id: 1n }, update: { item: "b" } },
    ],
    ["update", { where: {}, data: { item: "b" } }, { where: {}, data: { item: "b" } }],
    ["findMany", { where: { data: {} } }, { where: { data: {} } }],
    ["findMany", undefined, undefined],
    [
      "create",
      { data: { lines: { create: [{}, {}] } } },
      { data: { id: 1n, lines: { create: [{ lineId: 1n }, { lineId: 2n }] } } },
    ],
    [
      "create",
      { data: { lines: { create: { tag: { create: {} } } } } },
      { data: { id: 1n, lines: { create: { lineId: 1n, tag: { create: {} } } } } },
    ],
    [
      "create",
      { data: { lines: { createMany: { data: [{}] } } } },
      { data: { id: 1n, lines: { createMany: { data: [{ lineId: 1n }] } } } },
    ],
    [
      "update",
      {
        data: {
          lines: {
            connectOrCreate: [{ where: {}, create: {} }],
            upsert: { where: {}, create: {}, update: { order: { create: {} } } },
          },
        },
      },
      {
        data: {
          lines: {
            connectOrCreate: [{ where: {}, create: { lineId: 1n } }],
            upsert: { where: {}, create: { lineId: 2n }, update: { order: { create: { id: 1n } } } },
          },
        },
      },
    ],
    [
      "update",
      { data: { lines: { update: [{ where: {}, data: { order: { create: {} } } }], connect: { id: 3n } } } },
      { data: { lines: { update: [{ where: {}, data: { order: { create: { id: 1n } } } }], connect: { id: 3n } } } },
    ],
  ] as const) {
    const models = { Order: testIds("orders"), Line: { ids: testIds("lines"), field: "lineId" } };
    const { query } = snowmintIds({ models, datamodel });
    const before = structuredClone(args);
    const got: unknown = await query.$allModels.$allOperations({
      model: "Order",
      operation,
      args,
      query: (filled) => Promise.resolve(filled),
    });
    assert.deepEqual(got, expected);
    assert.deepEqual(args, before, "the arguments of the program changed");
    assert.ok(models.Order.calls.length <= 1 && models.Line.ids.calls.length <= 1, "one call for each namespace");
  }
});

void test("a model or field that the datamodel lacks is an error", () => {
  const ids = testIds("orders");
  for (const [models, message] of [
    [{ order: ids }, 'invalid model "order": expected one of Order, Line'],
    [{ Line: ids }, 'invalid field "id": expected a field of the model Line'],
    [{ Order: { ids, field: "key" } }, 'invalid field "key": expected a field of the model Order'],
  ] as const) {
    assert.throws(() => snowmintIds({ models, datamodel }), { kind: "InvalidOption", message });
    snowmintIds({ models });
  }
});

void test("withIds fills copies of rows with one call", async () => {
  const ids = testIds("orders");
  const rows = [{ item: "a" }, { item: "b", id: 9n }, { item: "c", id: undefined }];
  assert.deepEqual(await withIds(ids, rows), [
    { item: "a", id: 1n },
    { item: "b", id: 9n },
    { item: "c", id: 2n },
  ]);
  assert.deepEqual(await withIds(ids, [{}], "key"), [{ key: 3n }]);
  assert.deepEqual(await withIds(ids, []), []);
  assert.deepEqual(rows[0], { item: "a" });
  assert.deepEqual(ids.calls, [2, 1]);
});

void test("a default is an id in memory, or an error that says what to do", () => {
  const next = defaultId(testIds("orders"));
  assert.deepEqual([next(), next(), next()], [1n, 2n, 3n]);
  assert.throws(next, { kind: "Unavailable", message: /no id of namespace "orders" is in memory: use withIds/ });
});
