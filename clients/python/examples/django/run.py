"""Stores orders in PostgreSQL through Django, with ids from Snowmint.

It creates the tables of the app `shop`, and drops those that exist. It fills them in threads and forked processes, checks the ids
and exits. SNOWMINT_SERVERS has the URLs of the servers, separated by commas; DATABASE_URL is
postgresql://USER:PASSWORD@HOST:PORT/DATABASE.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).parent))
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from shop.models import Line, Order  # noqa: E402

THREADS, PROCESSES, EACH = 4, 4, 250
"""Orders of each thread and each process, with one line each."""


def fill_one_by_one(count: int) -> None:
    for n in range(count):
        order = Order.objects.create(item="book")
        order.lines.create(amount=n)
    connections.close_all()


def fill_in_bulk(count: int) -> None:
    # The orders have their ids before they are stored, so the lines can refer to them.
    orders = [Order(item="book") for _ in range(count)]
    lines = [Line(order=order, amount=n) for n, order in enumerate(orders)]
    Order.objects.bulk_create(orders)
    Line.objects.bulk_create(lines)
    connections.close_all()


def check() -> tuple[int, int]:
    """Compares the number of rows with that of distinct ids, over both tables."""
    ids = [*Order.objects.values_list("id", flat=True), *Line.objects.values_list("id", flat=True)]
    numbers = set(Order.objects.values_list("number", flat=True))
    orders = (THREADS + PROCESSES) * EACH
    with_a_line = Line.objects.filter(order__id__gt=0).count()
    if not len(ids) == len(set(ids)) == 2 * orders or not len(numbers) == with_a_line == orders:
        sys.exit(f"{len(ids)} rows, {len(set(ids))} distinct ids, {len(numbers)} numbers: expected {orders} orders with a line")
    return len(ids), len(set(ids))


def main() -> None:
    call_command("migrate", "shop", "zero", verbosity=0)
    call_command("migrate", "shop", verbosity=0)
    with ThreadPoolExecutor(THREADS) as pool:
        for filled in [pool.submit(fill_one_by_one, EACH) for _ in range(THREADS)]:
            filled.result()
    # This process has ids in memory now. Its children start without them.
    connections.close_all()
    fork = multiprocessing.get_context("fork")
    fills = [fill_one_by_one, fill_in_bulk] * (PROCESSES // 2)
    processes = [fork.Process(target=fill, args=(EACH,)) for fill in fills]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode != 0:
            sys.exit(f"a process ended with status {process.exitcode}")
    rows, distinct = check()
    print(json.dumps({"rows": rows, "distinct": distinct}, separators=(",", ":")))


if __name__ == "__main__":
    main()
