"""Measures calls for one id: of Snowmint, and of generators that run in the process. Prints a table.

Each row has the best of several runs. SNOWMINT_SERVER is the URL of a server with the namespaces `orders` (a segment, numbers)
and `default` (a snowflake layout).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Callable

from snowflake import SnowflakeGenerator

import snowmint

RUNS = 5
RUN_TIME = 0.3
"""About how long a run takes, in seconds."""
PACED_CALLS = 100_000
PACE = 10e-6
"""The time between two calls at a steady rate, for p99.9."""


def ns_each(call: Callable[[], object]) -> float:
    """Returns the time of a call in the best run."""
    best, calls, runs = float("inf"), 1000, 0
    # The first runs warm up, and find out how many calls a run takes.
    while runs < RUNS:
        began = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - began
        if took < RUN_TIME / 2:
            calls *= 2
            continue
        best = min(best, took / calls * 1e9)
        runs += 1
    return best


async def ns_each_await(ids: snowmint.AsyncNamespace) -> float:
    """Does the same for calls that are awaited."""
    best, calls, runs = float("inf"), 1000, 0
    while runs < RUNS:
        began = time.perf_counter()
        for _ in range(calls):
            await ids.next()
        took = time.perf_counter() - began
        if took < RUN_TIME / 2:
            calls *= 2
            continue
        best = min(best, took / calls * 1e9)
        runs += 1
    return best


def p999_us(call: Callable[[], object]) -> float:
    """Returns p99.9 of a call at 100,000 calls a second in the best run."""
    return min(_paced(call) for _ in range(RUNS))


def _paced(call: Callable[[], object]) -> float:
    latencies = []
    due = time.perf_counter()
    for _ in range(PACED_CALLS):
        due += PACE
        # A sleep would be longer than the pace.
        while time.perf_counter() < due:
            pass
        began = time.perf_counter()
        call()
        latencies.append(time.perf_counter() - began)
    latencies.sort()
    return latencies[len(latencies) * 999 // 1000] * 1e6


def row(name: str, ns: float, p999: float | None = None) -> None:
    print(json.dumps({"row": name, "ns": round(ns, 1), "p999_us": p999 and round(p999, 2)}), flush=True)


def main() -> None:
    server = os.environ.get("SNOWMINT_SERVER")
    if not server:
        sys.exit("set SNOWMINT_SERVER to the URL of a server")
    peer = SnowflakeGenerator(1)
    with snowmint.Client([server], namespace_max_age={"orders": None}) as client:
        orders, ids = client.namespace("orders"), client.namespace("default")
        row("snowmint next(), numbers", ns_each(orders.next), p999_us(orders.next))
        row("snowmint next(), snowflake", ns_each(ids.next), p999_us(ids.next))
    client_of_asyncio = snowmint.AsyncClient([server], namespace_max_age={"orders": None})
    row("snowmint await next(), numbers", asyncio.run(ns_each_await(client_of_asyncio.namespace("orders"))))
    row("uuid.uuid4()", ns_each(uuid.uuid4))
    # It returns `None` once its ids of the present millisecond are used up.
    row("snowflake-id next()", ns_each(lambda: next(peer)))
    asyncio.run(client_of_asyncio.close())


if __name__ == "__main__":
    main()
