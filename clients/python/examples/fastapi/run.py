"""Runs the service under gunicorn with 4 workers, creates orders in threads, checks their ids, and ends it.

It creates the table `orders`, and drops one that exists. SNOWMINT_SERVERS has the URLs of the servers, separated by commas;
DATABASE_URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

THREADS = 8
EACH = 500
WORKERS = 4


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def post(connection: http.client.HTTPConnection, item: str) -> dict[str, Any]:
    connection.request("POST", "/orders", json.dumps({"item": item}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}, expected an order with an id: {text}")
    order: dict[str, Any] = json.loads(text)
    return order


def fill(port: int) -> list[dict[str, Any]]:
    """Creates orders over a few connections, which different workers accept."""
    orders = []
    for _ in range(10):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        orders += [post(connection, "book") for _ in range(EACH // 10)]
        connection.close()
    return orders


def wait_for(port: int, service: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while service.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("the service does not start")


def check(orders: list[dict[str, Any]]) -> tuple[int, int]:
    """Compares the orders in the answers with those in the database."""
    answered = {int(order["id"]) for order in orders}
    workers = {order["worker"] for order in orders}
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        stored = [row[0] for row in database.execute("SELECT id FROM orders")]
    if len(orders) != THREADS * EACH or set(stored) != answered or len(stored) != len(orders):
        sys.exit(f"{len(orders)} orders, {len(answered)} distinct ids in answers, {len(stored)} rows: expected {THREADS * EACH}")
    if len(workers) < 2:
        sys.exit("one worker created all orders: expected several")
    return len(stored), len(set(stored))


def main() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        database.execute("DROP TABLE IF EXISTS orders CASCADE")
        database.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT NOT NULL)")
    port = free_port()
    gunicorn = ["gunicorn", "--preload", f"--workers={WORKERS}", "--worker-class=uvicorn_worker.UvicornWorker"]
    service = subprocess.Popen(
        [sys.executable, "-m", *gunicorn, f"--bind=127.0.0.1:{port}", "--log-level=warning", "app:app"],
        cwd=Path(__file__).parent,
    )
    try:
        wait_for(port, service)
        with ThreadPoolExecutor(THREADS) as pool:
            orders = [order for filled in pool.map(fill, [port] * THREADS) for order in filled]
    finally:
        service.terminate()
        service.wait(timeout=60)
    rows, distinct = check(orders)
    print(json.dumps({"rows": rows, "distinct": distinct}, separators=(",", ":")))


if __name__ == "__main__":
    main()
