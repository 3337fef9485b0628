"""The connections to all servers, opened on demand."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from . import _http
from ._options import Server
from ._threads import in_thread

_CONNECT_TIMEOUT = 1.0
"""Limit in seconds of connecting to one address, before TLS."""
_KEPT_IDLE = 60.0
"""How long in seconds an idle connection is kept; shorter than the server's limit."""
_LONGEST_ERROR = 16 * 1024
"""Limit in bytes of an error."""

T = TypeVar("T")
_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


@dataclass(frozen=True)
class Answer:
    """An answer of a server. If the body of an error cannot be read, it is empty."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connections:
    """Sends requests. Each connection has one request at a time, and is kept for later ones."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._idle: dict[str, list[_http.Stream]] = {}
        self._sockets: set[socket.socket] = set()

    async def post(self, server: Server, request: bytes, request_id: str, most: int, read: Callable[[Answer], T]) -> T:
        """Sends one request, once, and returns what `read` makes of the answer, whose body may have `most` bytes.

        Raises `BrokenAnswer`, an `OSError` of the connection, or what `read` raises. Any of them closes the connection, so
        nothing that arrives later is taken for the answer to another request.
        """
        stream = self._take_idle(server) or await self._connect(server)
        try:
            stream.send(request, 2 * max(most, _LONGEST_ERROR) + _http.LONGEST_HEAD)
            head = await _http.read_head(stream)
            # Without the header it counts: a proxy may have removed it.
            if head.headers.get("snowmint-request", request_id) != request_id:
                raise _http.BrokenAnswer("invalid answer: it belongs to another request")
            if head.status == 200:
                body, stays = await _http.read_body(stream, head, most)
            else:
                body, stays = await _read_error(stream, head)
            answer = read(Answer(head.status, head.headers, body))
        except BaseException:
            stream.abort()
            raise
        if stays and stream.is_idle:
            self._keep(server, stream)
        else:
            stream.abort()
        return answer

    def close(self) -> None:
        """Closes the idle connections."""
        for streams in self._idle.values():
            for stream in streams:
                stream.abort()
        self._idle.clear()

    def close_inherited(self) -> None:
        """Closes the sockets in a forked child. Its parent goes on to use its own copies."""
        for inherited in self._sockets:
            inherited.close()

    def _take_idle(self, server: Server) -> _http.Stream | None:
        streams = self._idle.get(server.url, [])
        while streams:
            stream = streams.pop()
            if stream.is_idle and _is_quiet(stream):
                return stream
            stream.abort()
        return None

    def _keep(self, server: Server, stream: _http.Stream) -> None:
        streams = self._idle.setdefault(server.url, [])

        def expire() -> None:
            if stream in streams:
                streams.remove(stream)
            stream.abort()

        streams.append(stream)
        stream.rest(asyncio.get_running_loop().call_later(_KEPT_IDLE, expire))

    async def _connect(self, server: Server) -> _http.Stream:
        opened = await _connected_socket(server)
        self._sockets = {it for it in self._sockets if it.fileno() >= 0} | {opened}
        # From here on, the transport closes the socket.
        _, stream = await asyncio.get_running_loop().create_connection(
            _http.Stream,
            sock=opened,
            ssl=self._context if server.has_tls else None,
            server_hostname=server.host if server.has_tls else None,
        )
        stream.socket = opened
        return stream


def _is_quiet(stream: _http.Stream) -> bool:
    """Returns whether nothing has arrived that the event loop has not read yet, such as a second answer, or the end."""
    assert stream.socket is not None
    try:
        stream.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


async def _connected_socket(server: Server) -> socket.socket:
    failure = OSError(f"{server.host} has no address")
    for family, address in await _addresses(server):
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setblocking(False)
        connecting = asyncio.ensure_future(asyncio.get_running_loop().sock_connect(opened, address))
        try:
            await asyncio.wait({connecting}, timeout=_CONNECT_TIMEOUT)
            if not connecting.done():
                raise TimeoutError(f"no connection to {address[0]!r} within {_CONNECT_TIMEOUT:g} s")
            connecting.result()
        except BaseException as error:
            await _close(opened, connecting)
            if not isinstance(error, OSError):
                raise
            failure = error
        else:
            return opened
    raise failure


async def _close(opened: socket.socket, connecting: asyncio.Future[None]) -> None:
    connecting.cancel()
    try:
        # The event loop has to forget the socket first: the next one may have the same number.
        await asyncio.wait({connecting})
    finally:
        opened.close()


async def _read_error(stream: _http.Stream, head: _http.Head) -> tuple[bytes, bool]:
    try:
        return await _http.read_body(stream, head, _LONGEST_ERROR)
    except (_http.BrokenAnswer, OSError):
        return b"", False


async def _addresses(server: Server) -> list[_Address]:
    try:
        version = ipaddress.ip_address(server.host).version
    except ValueError:
        found = await in_thread(lambda: socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM))
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (server.host, server.port))]
