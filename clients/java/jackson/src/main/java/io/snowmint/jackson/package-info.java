/**
 * Writes ids as JSON strings, because a number in JavaScript is exact only up to 2<sup>53</sup>.
 * Annotate an id with {@link io.snowmint.jackson.JsonId}, or register {@link
 * io.snowmint.jackson.LongsAsStringsModule} for all of them.
 */
package io.snowmint.jackson;
