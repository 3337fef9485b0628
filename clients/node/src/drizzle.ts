/**
 * Ids for Drizzle ORM.
 *
 * @packageDocumentation
 */
import { SnowmintError } from "./errors.js";
import type { Ids } from "./ids.js";
import { Gaps } from "./rows.js";

/**
 * Returns copies of rows, with new ids where they have none. One call draws all of them:
 *
 * ```js
 * await db.insert(orders).values(await withIds(ids, [{ item: "a" }, { item: "b" }]));
 * ```
 *
 * @param field - the name of the id
 * @throws SnowmintError as `nextMany` does
 */
export async function withIds<T extends string | bigint, Row extends object, Field extends string = "id">(
  ids: Ids<T>,
  rows: readonly Row[],
  field: Field = "id" as Field,
): Promise<(Row & Record<Field, T>)[]> {
  const gaps = new Gaps();
  const filled = rows.map((row) => {
    const copy = { ...row } as Record<string, unknown>;
    gaps.note(ids, copy, field);
    return copy;
  });
  await gaps.fill();
  return filled as (Row & Record<Field, T>)[];
}

/**
 * Returns a function for `$defaultFn`. Drizzle cannot wait for a default, so an id must be in memory, else the insert fails. Use it
 * for namespaces whose ids do not age, with `buffer.min` above the rows of a burst, and await `next()` once at the start. Prefer
 * {@link withIds}, which waits.
 */
export function defaultId<T extends string | bigint>(ids: Ids<T>): () => T {
  return () => {
    const id = ids.tryNext();
    if (id === null) {
      const { name: namespace } = ids;
      throw new SnowmintError(
        "Unavailable",
        `no id of namespace "${namespace}" is in memory: use withIds, or raise buffer.min`,
        {
          namespace,
        },
      );
    }
    return id;
  };
}
