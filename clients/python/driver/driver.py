"""Drives the Python client for the conformance kit: reads commands from standard input, and writes answers to standard output.

With --asyncio it drives `AsyncClient`, otherwise `Client`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import snowmint

Answer = dict[str, Any]

_write_lock = threading.Lock()


def reply(command_id: int, answer: Answer) -> None:
    line = json.dumps({"id": command_id, **answer})
    with _write_lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def failed(error: Exception) -> Answer:
    """Returns an error as the kit reads it."""
    if not isinstance(error, snowmint.Error):
        raise error
    retry_after = error.retry_after
    return {
        "error": {
            "kind": type(error).__name__,
            "temporary": error.temporary,
            "server": error.server,
            "status": error.status,
            "retry_after_ms": None if retry_after is None else int(retry_after * 1000),
            "message": str(error),
        }
    }


def seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of the kit as those of the client."""
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name == "namespace_max_age_ms":
            read["namespace_max_age"] = {namespace: seconds(age) for namespace, age in value.items()}
        elif name.endswith("_ms"):
            read[name.removesuffix("_ms")] = seconds(value)
        elif isinstance(value, list) and name != "servers":
            read[name] = tuple(value)
        else:
            read[name] = value
    return read


def texts(ids: list[int] | list[str]) -> Answer:
    return {"ids": [str(drawn) for drawn in ids]}


def drawn(each: list[list[int]], errors: list[snowmint.Error], to: str) -> Answer:
    """Writes the ids of `draw`."""
    with open(to, "wb") as file:
        for ids in each:
            numbers = array("q", ids)
            if sys.byteorder == "big":
                numbers.byteswap()
            numbers.tofile(file)
    first = failed(errors[0])["error"] if errors else None
    return {"drawn": sum(map(len, each)), "errors": len(errors), "first_error": first}


def measured(took: float, count: int, each: list[float]) -> Answer:
    each.sort()
    return {"ns_each": took / count * 1e9, "p999_us": each[len(each) * 999 // 1000] * 1e6}


def fork(draw: Callable[[], Answer]) -> Answer:
    """Draws in a forked child, and returns its answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(draw()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    result: Answer = json.loads(answer)
    return result


class Driver:
    """Runs commands on `Client`, each in a thread of its own."""

    def __init__(self) -> None:
        # The kit expects a client to be there before the first one is opened: a closed one.
        self.client = snowmint.Client(["http://localhost"])
        self.client.close()

    def run(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            if command["op"] == "open":
                reply(command["id"], self.open(command["options"]))
            elif command["op"] == "close":
                self.client.close()
                reply(command["id"], {})
            else:
                threading.Thread(target=self.answer, args=(self.client, command), daemon=True).start()

    def open(self, given: dict[str, Any]) -> Answer:
        try:
            self.client = snowmint.Client(**options(given))
        except snowmint.Error as error:
            return failed(error)
        return {}

    def answer(self, client: snowmint.Client, command: dict[str, Any]) -> None:
        try:
            answer = self.command(client, command)
        except snowmint.Error as error:
            answer = failed(error)
        reply(command["id"], answer)

    def command(self, client: snowmint.Client, command: dict[str, Any]) -> Answer:
        open_handle = client.texts if command.get("texts") else client.namespace
        ids: Any = open_handle(command.get("namespace", "orders"))
        match command["op"]:
            case "next":
                return texts([ids.next()] if "count" not in command else ids.next_many(command["count"]))
            case "try_next":
                drawn = ids.try_next()
                return texts([] if drawn is None else [drawn])
            case "buffered":
                return {"buffered": ids.buffered}
            case "discard_buffered":
                ids.discard_buffered()
                return {}
            case "stats":
                return client.stats()._asdict()
            case "store":
                return {"store": client.store}
            case "fork":
                return fork(lambda: self.drawn_in_child(ids, command["count"]))
            case "draw":
                return self.draw(ids, command)
            case "bench":
                return self.bench(ids, command.get("count", 1_000_000))
        raise ValueError(f"unknown command {command['op']!r}")

    @staticmethod
    def drawn_in_child(ids: snowmint.Namespace, count: int) -> Answer:
        try:
            return texts(ids.next_many(count))
        except snowmint.Error as error:
            return failed(error)

    @staticmethod
    def draw(ids: snowmint.Namespace, command: dict[str, Any]) -> Answer:
        each: list[list[int]] = [[] for _ in range(command["threads"])]
        errors: list[snowmint.Error] = []

        def run(drawn: list[int]) -> None:
            for _ in range(command["each"]):
                try:
                    drawn.append(ids.next())
                except snowmint.Error as error:
                    errors.append(error)

        threads = [threading.Thread(target=run, args=(drawn,)) for drawn in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return drawn(each, errors, command["to"])

    @staticmethod
    def bench(ids: snowmint.Namespace, count: int) -> Answer:
        # The buffer grows with the use.
        for _ in range(count // 10):
            ids.next()
        began = time.perf_counter()
        for _ in range(count):
            ids.next()
        took = time.perf_counter() - began
        each = []
        for _ in range(min(count, 100_000)):
            began = time.perf_counter()
            ids.next()
            each.append(time.perf_counter() - began)
        return measured(took, count, each)


class AsyncDriver:
    """Runs commands on `AsyncClient`, each in a task of its own."""

    def __init__(self) -> None:
        self.client = snowmint.AsyncClient(["http://localhost"])
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self.client.close()
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            if command["op"] == "open":
                reply(command["id"], self.open(command["options"]))
            elif command["op"] == "close":
                await self.client.close()
                reply(command["id"], {})
            else:
                task = asyncio.create_task(self.answer(self.client, command))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    def open(self, given: dict[str, Any]) -> Answer:
        try:
            self.client = snowmint.AsyncClient(**options(given))
        except snowmint.Error as error:
            return failed(error)
        return {}

    async def answer(self, client: snowmint.AsyncClient, command: dict[str, Any]) -> None:
        try:
            answer = await self.command(client, command)
        except snowmint.Error as error:
            answer = failed(error)
        reply(command["id"], answer)

    async def command(self, client: snowmint.AsyncClient, command: dict[str, Any]) -> Answer:
        open_handle = client.texts if command.get("texts") else client.namespace
        ids: Any = open_handle(command.get("namespace", "orders"))
        match command["op"]:
            case "next":
                return texts([await ids.next()] if "count" not in command else await ids.next_many(command["count"]))
            case "try_next":
                drawn = ids.try_next()
                return texts([] if drawn is None else [drawn])
            case "buffered":
                return {"buffered": ids.buffered}
            case "discard_buffered":
                ids.discard_buffered()
                return {}
            case "stats":
                return client.stats()._asdict()
            case "store":
                return {"store": client.store}
            case "fork":
                return fork(lambda: self.drawn_in_child(ids, command["count"]))
            case "draw":
                return await self.draw(ids, command)
            case "bench":
                return await self.bench(ids, command.get("count", 1_000_000))
        raise ValueError(f"unknown command {command['op']!r}")

    @staticmethod
    def drawn_in_child(ids: snowmint.AsyncNamespace, count: int) -> Answer:
        answer: Answer = {}

        def run() -> None:
            try:
                answer.update(texts(asyncio.run(ids.next_many(count))))
            except snowmint.Error as error:
                answer.update(failed(error))

        # The event loop of the parent runs in this thread.
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return answer

    @staticmethod
    async def draw(ids: snowmint.AsyncNamespace, command: dict[str, Any]) -> Answer:
        each: list[list[int]] = [[] for _ in range(command["threads"])]
        errors: list[snowmint.Error] = []

        async def run(drawn: list[int]) -> None:
            for n in range(command["each"]):
                try:
                    drawn.append(await ids.next())
                except snowmint.Error as error:
                    errors.append(error)
                if n % 100 == 0:
                    # Ids from memory do not let others run.
                    await asyncio.sleep(0)

        await asyncio.gather(*map(run, each))
        return drawn(each, errors, command["to"])

    @staticmethod
    async def bench(ids: snowmint.AsyncNamespace, count: int) -> Answer:
        for _ in range(count // 10):
            await ids.next()
        began = time.perf_counter()
        for _ in range(count):
            await ids.next()
        took = time.perf_counter() - began
        each = []
        for _ in range(min(count, 100_000)):
            began = time.perf_counter()
            await ids.next()
            each.append(time.perf_counter() - began)
        return measured(took, count, each)


if __name__ == "__main__":
    if "--asyncio" in sys.argv[1:]:
        asyncio.run(AsyncDriver().run())
    else:
        Driver().run()
