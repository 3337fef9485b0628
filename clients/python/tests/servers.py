"""Servers that tests script."""

from __future__ import annotations

import queue
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    path: str
    count: int
    headers: dict[str, str]


Reply = Callable[[Request], bytes]


def answer(body: str, status: int = 200, headers: str = "") -> bytes:
    """Returns an answer with a body."""
    data = body.encode()
    return f"HTTP/1.1 {status} Scripted\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data


@dataclass
class Server:
    """Gives each id once, and each answer when it may."""

    url: str
    requests: queue.Queue[Request] = field(default_factory=queue.Queue)
    last: int = 0
    """The last id that was given."""
    may_answer: threading.Semaphore | None = None
    """Is acquired before each answer; `None`: answers come at once."""
    connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, request: Request) -> bytes:
        self.requests.put(request)
        if self.may_answer is not None:
            self.may_answer.acquire()
        with self._lock:
            first = self.last + 1
            self.last += request.count
        if request.path.startswith("/v1/ids/"):
            texts = ",".join(f'"A-{n}"' for n in range(first, first + request.count))
            return answer(f'{{"ids":[{texts}]}}')
        return answer(f'{{"ranges":[{{"first":"{first}","count":{request.count},"step":"1"}}]}}')


@contextmanager
def serving(
    reply: Reply | None = None, *, may_answer: threading.Semaphore | None = None, context: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """Runs a server, which replies with ids unless `reply` says otherwise."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            server.connections += 1
            while request := _read(self):
                self.wfile.write((reply or server.reply)(request))
                self.wfile.flush()

        def setup(self) -> None:
            if context is not None:
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """A broken connection concerns its client only."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        scheme = "http" if context is None else "https"
        server = Server(f"{scheme}://127.0.0.1:{listener.server_address[1]}", may_answer=may_answer)
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            if may_answer is not None:
                may_answer.release(1000)


def _read(handler: socketserver.StreamRequestHandler) -> Request | None:
    line = handler.rfile.readline().decode()
    if not line:
        return None
    headers = {}
    while field_line := handler.rfile.readline().decode().strip():
        name, _, value = field_line.partition(":")
        headers[name.lower()] = value.strip()
    target = urlsplit(line.split()[1])
    return Request(target.path, int(parse_qs(target.query)["count"][0]), headers)
