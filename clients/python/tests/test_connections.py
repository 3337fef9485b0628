"""Connections to servers with several addresses, and bad answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

import snowmint
from servers import Request, Server, answer, serving
from snowmint import _connections
from snowmint import _options as options
from snowmint._connections import Connections
from test_client import UNLIMITED


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """The address of a listener whose queue is full, so that nobody gets a connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        for _ in range(8):
            opened = socket.socket()
            opened.setblocking(False)
            opened.connect_ex(listener.getsockname())
            waiting.append(opened)
        yield listener.getsockname()
        for opened in waiting:
            opened.close()


def test_an_answer_to_another_request_is_dropped_and_ends_its_connection() -> None:
    """As from a proxy that sends an answer twice."""
    ids: list[str] = []

    def reply(request: Request) -> bytes:
        ids.append(request.headers["snowmint-request"])
        body = f'{{"ranges":[{{"first":"{len(ids)}","count":1,"step":"1"}}]}}'
        return answer(body, headers=f"Snowmint-Request: {ids[0]}\r\n") if len(ids) < 3 else answer(body)

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        assert client.namespace("orders").next() == 1
        assert client.namespace("orders").next() == 3
        assert (client.stats().failed, server.connections, len(set(ids))) == (1, 2, 3)


def test_bytes_that_the_event_loop_has_not_read_end_the_connection() -> None:
    """A second answer without an id of its request could otherwise be taken for the answer to the next one."""
    sent = threading.Event()

    def serve(listener: socket.socket) -> None:
        for first in (True, False):
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.recv(10_000)
                connection.sendall(answer("first" if first else "second"))
                if first:
                    time.sleep(0.05)
                    connection.sendall(answer("first"))
                    sent.set()
                connection.recv(10_000)

    async def run(port: int) -> list[bytes]:
        connections = Connections(None)
        server = options.Server("", "127.0.0.1", port, False, "", "")
        bodies = []
        for _ in range(2):
            bodies.append(await connections.post(server, b"request", "id", 1024, lambda it: it.body))
            # The event loop does not run.
            assert sent.wait(30)
        connections.close()
        return bodies

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        assert asyncio.run(run(listener.getsockname()[1])) == [b"first", b"second"]
        thread.join()


def test_an_invalid_answer_ends_its_connection() -> None:
    replies = iter([answer('{"ranges":[]}')])

    def reply(_: Request) -> bytes:
        return next(replies, None) or answer('{"ranges":[{"first":"1","count":1,"step":"1"}]}')

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        assert client.namespace("orders").next() == 1
        assert server.connections == 2


def test_the_next_address_follows_one_that_does_not_answer(
    server: Server, silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(_: object) -> list[tuple[int, tuple[str, int]]]:
        port = int(server.url.rsplit(":", 1)[1])
        return [(socket.AF_INET, silent), (socket.AF_INET, silent), (socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr(_connections, "_addresses", addresses)
    monkeypatch.setattr(_connections, "_CONNECT_TIMEOUT", 0.05)
    with snowmint.Client([server.url], **UNLIMITED) as client:
        assert client.namespace("orders").next() == 1
        assert client.stats().failed == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 100_000,
        b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
        answer('{"ranges":[]}'),
        answer("x" * 20_000, status=503),
    ],
)
def test_the_call_survives_a_bad_answer(bad: bytes) -> None:
    replies = iter([bad])

    def reply(request: Request) -> bytes:
        return next(replies, b"") or answer(f'{{"ranges":[{{"first":"1","count":{request.count},"step":"1"}}]}}')

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED) as client:
        assert client.namespace("orders").next() == 1
        assert client.stats().failed >= 1
