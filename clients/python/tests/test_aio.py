"""The client for asyncio, against a server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import snowmint
from servers import Server, serving
from test_client import UNLIMITED, threads_of_clients, until


def test_tasks_that_are_cancelled_at_any_moment_lose_no_id_to_another(server: Server) -> None:
    async def run() -> list[int]:
        async with snowmint.AsyncClient([server.url], **UNLIMITED) as client:
            ids = client.namespace("orders")
            drawn: list[int] = []

            async def draw(count: int) -> None:
                drawn.extend(await ids.next_many(count) if count % 2 else [await ids.next()])

            for n in range(400):
                tasks = [asyncio.ensure_future(draw(n % 50 + extra)) for extra in range(1, 6)]
                for _ in range(n % 4):
                    await asyncio.sleep(0)
                tasks[n % 5].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return drawn

    drawn = asyncio.run(run())
    assert len(drawn) > 10_000
    assert len(set(drawn)) == len(drawn)
    assert max(drawn) <= server.last


def test_a_cancelled_call_leaves_its_ids_to_the_next() -> None:
    may_answer = threading.Semaphore(0)

    async def run(server: Server) -> None:
        async with snowmint.AsyncClient([server.url], **UNLIMITED, buffer=(0, 0)) as client:
            ids = client.namespace("orders")
            left = asyncio.ensure_future(ids.next_many(2))
            await asyncio.to_thread(server.requests.get, timeout=30)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            stays = asyncio.ensure_future(ids.next_many(2))
            await asyncio.to_thread(until, lambda: any(not it.has_left for it in list(ids._source._waiters)))
            may_answer.release()
            assert await stays == [1, 2]

    with serving(may_answer=may_answer) as server:
        asyncio.run(run(server))


def test_one_client_serves_several_event_loops(server: Server) -> None:
    client = snowmint.AsyncClient([server.url], **UNLIMITED)
    ids = client.namespace("orders")
    assert [asyncio.run(ids.next()) for _ in range(3)] == [1, 2, 3]
    asyncio.run(client.close())
    with pytest.raises(snowmint.Closed):
        asyncio.run(ids.next())


def test_an_event_loop_that_was_closed_does_not_disturb_others() -> None:
    may_answer = threading.Semaphore(0)
    with serving(may_answer=may_answer) as server:
        client = snowmint.AsyncClient([server.url], **UNLIMITED)
        ids = client.namespace("orders")
        loop = asyncio.new_event_loop()
        abandoned = loop.create_task(ids.next())
        loop.run_until_complete(asyncio.sleep(0))
        server.requests.get(timeout=30)
        assert not abandoned.done()
        abandoned._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        may_answer.release(10)
        assert asyncio.run(ids.next()) > 0
        asyncio.run(client.close())


def test_close_ends_the_wait_and_the_thread() -> None:
    before = threads_of_clients()

    async def run(server: Server) -> None:
        client = snowmint.AsyncClient([server.url], **UNLIMITED)
        waiting = asyncio.ensure_future(client.namespace("orders").next())
        await asyncio.to_thread(server.requests.get, timeout=30)
        await client.close()
        with pytest.raises(snowmint.Closed):
            await waiting

    with serving(may_answer=threading.Semaphore(0)) as server:
        asyncio.run(run(server))
    until(lambda: threads_of_clients() <= before)


def test_the_timeout_of_a_call() -> None:
    async def run() -> Any:
        async with snowmint.AsyncClient(["http://127.0.0.1:1"], timeout=0.05) as client:
            with pytest.raises(snowmint.Unavailable, match=r"within 0\.05 s: "):
                await client.namespace("orders").next()
            with pytest.raises(snowmint.InvalidNamespace):
                await client.namespace("a/b").next()
            with pytest.raises(snowmint.InvalidCount):
                await client.namespace("orders").next_many(0)

    asyncio.run(run())


def test_texts(server: Server) -> None:
    async def run() -> None:
        async with snowmint.AsyncClient([server.url], **UNLIMITED) as client:
            texts = client.texts("tickets")
            assert await texts.next() == "A-1"
            assert await texts.next_many(2) == ["A-2", "A-3"]
            assert texts.try_next() == "A-4"
            assert texts.buffered == 13
            texts.discard_buffered()
            assert texts.buffered == 0
            assert client.stats().requests == 1
            assert client.store is None

    asyncio.run(run())
