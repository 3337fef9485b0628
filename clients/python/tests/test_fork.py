"""A forked child never returns an id that its parent fetched, and does not disturb it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import snowmint
from servers import Server, serving
from snowmint._request import RequestIds
from test_client import UNLIMITED

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(call: Callable[[], list[int]]) -> list[int]:
    """Returns what a call returns in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, ",".join(map(str, call())).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return [int(it) for it in text.split(",") if it]


def test_a_child_starts_empty(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED, buffer=(100, 100)) as client:
        ids = client.namespace("orders")
        parent = ids.next_many(10)
        assert ids.buffered == 100
        child = in_child(lambda: [ids.buffered, client.stats().requests, *ids.next_many(150)])
        assert child[:2] == [0, 0]
        grandchild = in_child(lambda: in_child(lambda: ids.next_many(150)))
        parent += ids.next_many(300)
        everything = parent + child[2:] + grandchild
        assert len(set(everything)) == len(everything) == 610


def test_a_fork_in_the_middle_of_a_draw(server: Server) -> None:
    """As in a signal handler that interrupts the draw: the child goes on with it."""
    with snowmint.Client([server.url], **UNLIMITED, buffer=(100, 100)) as client:
        ids = client.namespace("orders")
        assert [ids.next(), ids.next()] == [1, 2]
        turn, buffer = ids._source._buffer.turn, ids._source._buffer
        assert turn.ids
        assert in_child(lambda: [len(turn.ids), len(buffer.draw(500))]) == [0, 0]


def test_a_client_that_cannot_begin_in_the_child_keeps_no_ids(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise MemoryError

    with snowmint.Client([server.url], **UNLIMITED, buffer=(100, 100)) as client:
        ids = client.namespace("orders")
        assert ids.next() == 1
        monkeypatch.setattr(client._core, "_begin", fails)
        assert in_child(lambda: [ids.buffered, ids._source.draw_one() or 0]) == [0, 0]


def test_a_child_has_request_ids_of_its_own() -> None:
    """Even if the fork comes in the middle of a request."""
    parent = RequestIds()
    ids = [parent.next() for _ in range(3)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, parent.next().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        ids += [pipe.read(), parent.next()]
    assert os.waitpid(child, 0)[1] == 0
    assert len(set(ids)) == 5


def test_an_idle_parent_goes_on_after_a_child_has_ended(server: Server) -> None:
    """The child must not touch what it shares with its parent: the event loop's selector, and the connections."""
    with snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        ids = client.namespace("orders")
        ids.next()
        for _ in range(5):
            in_child(lambda: [ids.next()])
            ids.next()
        assert server.connections == 6, "one of the parent, and one of each child"


def test_a_lock_that_another_thread_holds_during_the_fork(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED) as client:
        ids = client.namespace("orders")
        ids.next()
        is_held, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with ids._source._lock, client._core._lock, client._core._engine._lock:
                is_held.set()
                may_end.wait(30)

        with ThreadPoolExecutor(1) as pool:
            holding = pool.submit(hold)
            is_held.wait(30)
            assert len(in_child(lambda: [ids.next(), client.namespace("others").next()])) == 2
            may_end.set()
            holding.result()


def test_an_answer_that_arrives_after_the_fork_belongs_to_the_parent() -> None:
    may_answer = threading.Semaphore(0)
    with (
        serving(may_answer=may_answer) as server,
        snowmint.Client([server.url], **UNLIMITED) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        ids = client.namespace("orders")
        waiting = pool.submit(ids.next_many, 5)
        server.requests.get(timeout=30)
        may_answer.release(100)
        child = in_child(lambda: ids.next_many(50))
        everything = child + waiting.result(timeout=30) + ids.next_many(50)
        assert len(set(everything)) == len(everything) == 105


def test_a_child_of_a_closed_client_and_of_one_without_a_thread(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED) as fresh:
        assert len(in_child(lambda: fresh.namespace("orders").next_many(5))) == 5
        ids = fresh.namespace("orders")
    fresh.close()

    def is_closed() -> list[int]:
        try:
            ids.next()
        except snowmint.Closed:
            return [1]
        return [0]

    assert in_child(is_closed) == [1]


def test_children_begin_with_servers_of_their_own() -> None:
    urls = [f"http://127.0.0.1:{port}" for port in range(1, 6)]

    def order(client: snowmint.Client) -> list[int]:
        return [server.port for server in client._core._fetcher.servers]

    with snowmint.Client(urls) as shuffled, snowmint.Client(urls, order="as_listed") as listed:
        orders = [in_child(lambda: order(shuffled)) for _ in range(10)]
        assert len(set(map(tuple, orders))) > 1
        assert in_child(lambda: order(listed)) == [1, 2, 3, 4, 5]
