/**
 * A client of the Snowmint id service: unique 64-bit ids, most of them from memory in nanoseconds.
 *
 * A {@link Client} draws ranges of ids from one or more servers over HTTP, and hands each id to one caller. It requests more before
 * the ids in memory are used up. If a server fails, the next one gets the request, and callers see no error.
 *
 * No id is returned twice: an answer is used once and as a whole, and nothing repeats a request. Two copies of one process are the
 * exception: call `discardBuffered` before a snapshot that may start twice.
 *
 * @packageDocumentation
 */
export { Client, type Stats } from "./client.js";
export { type ErrorKind, SnowmintError } from "./errors.js";
export type { CallOptions, Ids } from "./ids.js";
export type { Options } from "./options.js";
export { VERSION } from "./version.js";
