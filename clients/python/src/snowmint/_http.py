"""One HTTP/1.1 request over one connection, read strictly: what two readers may understand differently is an error."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass

LONGEST_HEAD = 16 * 1024
_LONGEST_LINE = 1024

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n\0]*)?")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\r\n\0]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n\0]*)?")


class BrokenAnswer(Exception):
    """An answer that is not HTTP/1.1, too long, or ended early."""


@dataclass(frozen=True)
class Head:
    """The status line and the headers of an answer. The values of a header that comes twice are joined."""

    status: int
    headers: dict[str, str]
    is_http_1_0: bool


class EndOfStream(BrokenAnswer):
    """The server closed the connection."""


class Stream(asyncio.Protocol):
    """The bytes of one connection. It never holds more than one answer may have."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.socket: socket.socket | None = None
        self._buffer = bytearray()
        # How many bytes may arrive. Between two answers there are none.
        self._room = 0
        self._end: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and nothing has arrived since the last answer."""
        return self._end is None and not self._buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            self.abort("invalid answer: more bytes than expected")
            return
        self._buffer += data
        self._wake()

    def eof_received(self) -> None:
        self._ended(EndOfStream("connection closed before the end of the answer"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc or EndOfStream("connection closed before the end of the answer"))

    def abort(self, why: str = "connection closed") -> None:
        """Closes the connection without waiting for anything."""
        self._ended(BrokenAnswer(why))
        if self.transport is not None:
            self.transport.abort()

    def send(self, request: bytes, most: int) -> None:
        """Sends a request, whose answer may have `most` bytes."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        assert self.transport is not None
        self._room = most
        self.transport.write(request)

    def rest(self, timer: asyncio.TimerHandle) -> None:
        """Lets nothing arrive until the next request, which cancels the timer."""
        self._room = 0
        self._idle_timer = timer

    async def until(self, end: bytes, most: int) -> bytes:
        """Reads up to and including a text. Returns what is before it."""
        searched, longest = 0, most + len(end)
        while (at := self._buffer.find(end, searched, longest)) < 0:
            if len(self._buffer) >= longest:
                raise BrokenAnswer(f"invalid answer: a head or line of more than {most} bytes")
            searched = max(0, len(self._buffer) - len(end) + 1)
            await self._more()
        return self._cut(at, len(end))

    async def exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            await self._more()
        return self._cut(length)

    async def to_end(self) -> bytes:
        """Reads until the server closes the connection."""
        while self._end is None:
            await self._more()
        if not isinstance(self._end, EndOfStream):
            raise self._end
        return self._cut(len(self._buffer))

    def _cut(self, length: int, skip: int = 0) -> bytes:
        part = bytes(self._buffer[:length])
        del self._buffer[: length + skip]
        return part

    async def _more(self) -> None:
        if self._end is not None:
            raise self._end
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def _ended(self, why: Exception) -> None:
        if self._end is None:
            self._end = why
            self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


async def read_head(stream: Stream) -> Head:
    """Reads the head of an answer; informational ones before it are skipped."""
    while True:
        head = _parse_head(await stream.until(b"\r\n\r\n", LONGEST_HEAD))
        if head.status == 101:
            raise BrokenAnswer("invalid answer: status 101 without a request for it")
        if head.status >= 200:
            return head


def _parse_head(text: bytes) -> Head:
    first, *lines = text.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise BrokenAnswer("invalid answer: no HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BrokenAnswer("invalid answer: invalid header")
        name, value = header[1].decode("ascii").lower(), header[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(int(status[2]), headers, status[1] == b"0")


async def read_body(stream: Stream, head: Head, most: int) -> tuple[bytes, bool]:
    """Reads the body of an answer, and whether the connection can be used again."""
    stays = not head.is_http_1_0 and "close" not in _words(head.headers.get("connection", ""))
    coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
    if head.status in (204, 304):
        return b"", stays and coding is None
    if coding is not None:
        if coding.lower() != "chunked" or length is not None or head.is_http_1_0:
            raise BrokenAnswer("invalid answer: ambiguous length")
        return await _read_chunks(stream, most), stays
    if length is None:
        body = await stream.to_end()
        if len(body) > most:
            raise BrokenAnswer(f"invalid answer: more than {most} bytes")
        return body, False
    if not (length.isascii() and length.isdigit()):
        raise BrokenAnswer("invalid answer: invalid Content-Length")
    if len(length) > 18 or int(length) > most:
        raise BrokenAnswer(f"invalid answer: more than {most} bytes")
    return await stream.exactly(int(length)), stays


async def _read_chunks(stream: Stream, most: int) -> bytes:
    body = bytearray()
    while True:
        line = _CHUNK.fullmatch(await stream.until(b"\r\n", _LONGEST_LINE))
        if line is None:
            raise BrokenAnswer("invalid answer: invalid chunk")
        size = int(line[1], 16)
        if size == 0:
            break
        if len(body) + size > most:
            raise BrokenAnswer(f"invalid answer: more than {most} bytes")
        body += await stream.exactly(size)
        if await stream.exactly(2) != b"\r\n":
            raise BrokenAnswer("invalid answer: invalid chunk")
    # Trailers have nothing that the client uses.
    while await stream.until(b"\r\n", LONGEST_HEAD):
        pass
    return bytes(body)


def _words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]
