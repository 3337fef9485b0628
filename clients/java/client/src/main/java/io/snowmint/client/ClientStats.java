package io.snowmint.client;

/**
 * Counts for metrics since the client was created. {@code buffered} is the present number.
 *
 * @param requests number of requests sent to servers, including hedged ones
 * @param hedged number of requests sent to a second server because the first had not answered yet
 * @param failed number of requests that failed, were rejected, or were abandoned
 * @param buffered number of ids in memory, of all namespaces
 */
public record ClientStats(long requests, long hedged, long failed, long buffered) {}
