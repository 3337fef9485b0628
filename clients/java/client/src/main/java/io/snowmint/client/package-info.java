/**
 * A client of the Snowmint id service: unique 64-bit ids, most of them from memory in nanoseconds.
 *
 * <p>A {@link io.snowmint.client.SnowmintClient} draws ranges of ids from one or more servers over
 * HTTP, and hands each id to one caller. It requests more before the ids in memory are used up. If
 * a server fails, the next one gets the request, and callers see no error.
 *
 * <p>No id is returned twice. An answer is used once and as a whole, and no request is repeated by
 * the library below. Two copies of one process are the exception: call {@link
 * io.snowmint.client.IdSource#discardBuffered} before a snapshot that may start twice.
 */
package io.snowmint.client;
