/**
 * Ids for Prisma Client.
 *
 * @packageDocumentation
 */
import { invalidOption } from "./errors.js";
import type { Ids } from "./ids.js";
import { Gaps } from "./rows.js";

/** The part of `Prisma.dmmf.datamodel` that says which fields are relations. */
export interface Datamodel {
  readonly models: readonly {
    readonly name: string;
    readonly fields: readonly { readonly name: string; readonly kind: string; readonly type: string }[];
  }[];
}

/** The ids of a model, and the field that they go to. */
export interface ModelIds {
  readonly ids: Ids<string | bigint>;
  readonly field: string;
}

export interface PrismaOptions {
  /**
   * The ids of each model, by its name. A handle fills the field `id`. Fields of the type `BigInt` need a handle of `client.bigints`,
   * fields of the type `String` one of `client.namespace` or `client.texts`. Other models are left alone.
   */
  readonly models: Readonly<Record<string, Ids<string | bigint> | ModelIds>>;
  /** `Prisma.dmmf.datamodel`, so that nested writes are filled too. */
  readonly datamodel?: Datamodel | undefined;
}

/** A query as Prisma gives it to an extension. */
interface Query {
  readonly model: string;
  readonly operation: string;
  readonly args: unknown;
  // The type of the arguments is that of the program's schema.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly query: (args: any) => Promise<unknown>;
}

/** An extension of Prisma Client. */
export interface PrismaExtension {
  readonly name: "snowmint";
  readonly query: { readonly $allModels: { $allOperations(query: Query): Promise<unknown> } };
}

type Row = Record<string, unknown>;

/**
 * Returns an extension that fills the ids of new rows: of `create`, `createMany`, `createManyAndReturn`, `upsert`, and of writes
 * nested in them or in `update`. A row that has an id keeps it.
 *
 * With a datamodel, a model or field that it lacks is an error of the kind `InvalidOption`.
 *
 * ```js
 * const prisma = new PrismaClient().$extends(
 *   snowmintIds({ models: { Order: client.bigints("orders") }, datamodel: Prisma.dmmf.datamodel }),
 * );
 * ```
 */
export function snowmintIds(options: PrismaOptions): PrismaExtension {
  const writer = new Writer(options);
  return {
    name: "snowmint",
    query: {
      $allModels: {
        async $allOperations({ model, operation, args, query }) {
          return query(await writer.fill(model, operation, args as Row));
        },
      },
    },
  };
}

class Writer {
  readonly #models: Map<string, ModelIds>;
  /** The model of each relation, by the model that has it and its name. */
  readonly #relations: Map<string, Map<string, string>>;

  constructor({ models, datamodel }: PrismaOptions) {
    for (const [name, of] of Object.entries(models)) {
      checkModel(name, "ids" in of ? of.field : "id", datamodel);
    }
    this.#models = new Map(
      Object.entries(models).map(([name, of]) => [name, "ids" in of ? of : { ids: of, field: "id" }]),
    );
    this.#relations = new Map(
      datamodel?.models.map(({ name, fields }) => {
        const relations = fields
          .filter(({ kind }) => kind === "object")
          .map((field) => [field.name, field.type] as const);
        return [name, new Map(relations)];
      }),
    );
  }

  /** Returns the arguments of an operation with ids. Those of the program stay as they are. */
  async fill(model: string, operation: string, args: Row): Promise<Row> {
    const gaps = new Gaps();
    const filled = this.#fillOperation(gaps, model, operation, args);
    await gaps.fill();
    return filled;
  }

  #fillOperation(gaps: Gaps, model: string, operation: string, args: Row): Row {
    switch (operation) {
      case "create":
      case "createMany":
      case "createManyAndReturn":
        return { ...args, data: this.#created(gaps, model, args.data) };
      case "update":
        return { ...args, data: this.#nested(gaps, model, args.data) };
      case "upsert":
        return {
          ...args,
          create: this.#created(gaps, model, args.create),
          update: this.#nested(gaps, model, args.update),
        };
      default:
        return args;
    }
  }

  /** Returns copies of one or several rows that will be created. */
  #created(gaps: Gaps, model: string, rows: unknown): unknown {
    return each(rows, (row) => {
      const copy = this.#nestedIn(gaps, model, row);
      const of = this.#models.get(model);
      if (of !== undefined) {
        gaps.note(of.ids, copy, of.field);
      }
      return copy;
    });
  }

  /** Returns copies of the data of one or several rows that exist. */
  #nested(gaps: Gaps, model: string, data: unknown): unknown {
    return each(data, (row) => this.#nestedIn(gaps, model, row));
  }

  #nestedIn(gaps: Gaps, model: string, data: Row): Row {
    const copy = { ...data };
    for (const [name, related] of this.#relations.get(model) ?? []) {
      if (isRow(copy[name])) {
        copy[name] = this.#writes(gaps, related, copy[name]);
      }
    }
    return copy;
  }

  /** Returns a copy of what is written to a relation. */
  #writes(gaps: Gaps, model: string, writes: Row): Row {
    const copy = { ...writes };
    if ("create" in copy) {
      copy.create = this.#created(gaps, model, copy.create);
    }
    for (const name of ["createMany", "connectOrCreate", "upsert", "update"]) {
      if (name in copy) {
        copy[name] = each(copy[name], (write) => this.#write(gaps, model, name, write));
      }
    }
    return copy;
  }

  #write(gaps: Gaps, model: string, name: string, write: Row): Row {
    switch (name) {
      case "createMany":
        return { ...write, data: this.#created(gaps, model, write.data) };
      case "connectOrCreate":
        return { ...write, create: this.#created(gaps, model, write.create) };
      case "upsert":
        return {
          ...write,
          create: this.#created(gaps, model, write.create),
          update: this.#nested(gaps, model, write.update),
        };
      default:
        // An update of a single row may come without `where` and `data`.
        return "data" in write
          ? { ...write, data: this.#nested(gaps, model, write.data) }
          : this.#nestedIn(gaps, model, write);
    }
  }
}

/** Throws if the datamodel lacks a model or its field: without an error, rows of the model would silently get no ids. */
function checkModel(name: string, field: string, datamodel: Datamodel | undefined): void {
  if (datamodel === undefined) {
    return;
  }
  const model = datamodel.models.find((other) => other.name === name);
  if (model === undefined) {
    const names = datamodel.models.map((other) => other.name).join(", ");
    throw invalidOption("model", JSON.stringify(name), `one of ${names}`);
  }
  if (!model.fields.some((other) => other.name === field)) {
    throw invalidOption("field", JSON.stringify(field), `a field of the model ${name}`);
  }
}

function isRow(value: unknown): value is Row {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Maps one object, or each of a list. Other values are for Prisma to reject. */
function each(value: unknown, map: (row: Row) => Row): unknown {
  if (Array.isArray(value)) {
    return value.map((item: unknown) => (isRow(item) ? map(item) : item));
  }
  return isRow(value) ? map(value) : value;
}
