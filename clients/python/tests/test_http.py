"""Answers over HTTP/1.1, read strictly."""

from __future__ import annotations

import asyncio

import pytest

from snowmint._http import BrokenAnswer, Stream, read_body, read_head


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        pass

    def abort(self) -> None:
        self.is_aborted = True


def read(*parts: bytes, most: int = 100, room: int = 1_000_000, error: Exception | None = None) -> tuple[int, bytes, bool]:
    """Reads an answer that arrives in parts, before the end of the connection."""

    async def run() -> tuple[int, bytes, bool]:
        stream = Stream()
        stream.connection_made(Transport())
        stream.send(b"request", room)

        async def reading() -> tuple[int, bytes, bool]:
            head = await read_head(stream)
            body, stays = await read_body(stream, head, most)
            return head.status, body, stays and stream.is_idle

        task = asyncio.ensure_future(reading())
        for part in parts:
            stream.data_received(part)
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        if not task.done():
            if error is None:
                stream.eof_received()
            stream.connection_lost(error)
        return await task

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc", True)),
        (b"HTTP/1.1 200\r\ncontent-length:3 \r\nConnection: x, Close\r\n\r\nabc", (200, b"abc", False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc", False)),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", (200, b"abc", False)),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            (200, b"a", True),
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: u\r\n\r\n", (200, b"abc", True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", True)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, b"", True)),
    ],
)
def test_valid_answers(text: bytes, expected: tuple[int, bytes, bool]) -> None:
    assert read(text) == expected
    assert read(*(text[at : at + 1] for at in range(len(text)))) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"a" * 101,
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 101,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"a" * 101 + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        b"HTTP/1.1 200 OK\r\nA: \0\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nA:" + b" " * 16_000 + b"\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b" + b" \t" * 8_000 + b"\n\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 099 No\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"<html>\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
        b"a" * 20_000,
    ],
)
def test_invalid_answers(text: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        read(text)


def test_a_connection_that_breaks() -> None:
    with pytest.raises(ConnectionResetError):
        read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", error=ConnectionResetError("reset"))
    with pytest.raises(ConnectionResetError):
        read(b"HTTP/1.1 200 OK\r\n\r\na", error=ConnectionResetError("reset"))


def test_more_than_there_is_room_for() -> None:
    with pytest.raises(BrokenAnswer, match="more bytes"):
        read(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 50, room=60)


def test_bytes_after_an_answer_end_the_connection() -> None:
    """They must never be taken for the answer to the next request."""
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
    assert read(text + text) == (200, b"a", False)

    async def late() -> None:
        stream = Stream()
        transport = Transport()
        stream.connection_made(transport)
        stream.send(b"request", 1000)
        stream.data_received(text)
        await read_body(stream, await read_head(stream), 100)
        stream.rest(asyncio.get_running_loop().call_later(60, lambda: None))
        assert stream.is_idle
        stream.data_received(text)
        assert transport.is_aborted
        assert not stream.is_idle

    asyncio.run(late())
