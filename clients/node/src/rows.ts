import type { Ids } from "./ids.js";

/** A row without an id, and where the id goes. */
interface Gap {
  readonly row: Record<string, unknown>;
  readonly field: string;
}

/** Collects rows that need ids, and fills them with one call for each namespace. */
export class Gaps {
  readonly #gaps = new Map<Ids<string | bigint>, Gap[]>();

  /** Notes a row, unless it has an id. */
  note(ids: Ids<string | bigint>, row: Record<string, unknown>, field: string): void {
    if (row[field] === undefined || row[field] === null) {
      const gaps = this.#gaps.get(ids) ?? [];
      this.#gaps.set(ids, gaps);
      gaps.push({ row, field });
    }
  }

  /** Sets the ids, in the order of the rows. */
  async fill(): Promise<void> {
    for (const [ids, gaps] of this.#gaps) {
      const drawn = await ids.nextMany(gaps.length);
      gaps.forEach(({ row, field }, index) => {
        row[field] = drawn[index];
      });
    }
  }
}
