// Package snowmint is a client of the Snowmint id service: unique 64-bit ids, most of them from memory in nanoseconds.
//
// A [Client] draws ranges of ids from one or more servers over HTTP, and hands each id to one caller. It requests more before the
// ids in memory are used up. If a server fails, the next one gets the request, and callers see no error.
//
// No id is returned twice. An answer is used once and as a whole, and no request is repeated by net/http. Two copies of one
// process are the exception: call [Namespace.DiscardBuffered] before a snapshot that may start twice.
package snowmint
