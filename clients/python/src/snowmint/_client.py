"""The client for threads."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from ._buffer import T
from ._core import ClientBase, HandleBase
from ._source import Source


class Client(ClientBase):
    """A client of one or more Snowmint servers that share a store.

    Create one and share it: any number of threads may use it. It sends no request and starts no thread before the first call. In
    a forked child it starts empty, with connections of its own. Use it as a context manager, or call `close`.

    Raises `InvalidOption`.

    Args:
        servers: URLs of the nodes of one service: `http://HOST:PORT` or `https://…`, with a path if a proxy needs it. All must
            share one store.
        order: Which server gets a request first: a random one for each client, so that clients share the load (`shuffled`), or
            the first in the list while it works (`as_listed`), for servers at different distances.
        token: Sent to every server as `Authorization: Bearer`. Over http, anyone on the network path can read it.
        token_file: A file with the token. It is read for each request, so a new token takes effect immediately.
        ca_file: A PEM file with the certificate authorities to trust. Default: those of the system.
        client_certificate: The PEM files of the client's certificate and key, for servers that require one.
        store: The identity of the store of the servers, as `snowmint doctor` shows it. Ids of any other store are dropped, and
            ids without a store too. Default: the store of the first answer.
        timeout: How long a call waits for ids, in seconds, 0.001 to 3600.
        hedge_after: How long a server may take, in seconds, before a second one gets the same request. `None` turns it off.
        max_age: The maximum age of an id from memory, in seconds, counted from its request. `None` is unlimited. Ids of two
            clients sort by time only up to this age. A call that waits may return ids that are older by its waiting time.
        namespace_max_age: The maximum age for single namespaces. Use `None` for numbers, so that none are dropped.
        buffer: The minimum and maximum number of ids that each namespace keeps in memory. Within these bounds the number follows
            the use. Of texts at most 100,000 are kept. With `(0, 0)` nothing is kept, and each call is a request.
    """

    def namespace(self, name: str) -> Namespace:
        """Returns a handle for the ids of a namespace: plain numbers, of a snowflake layout or a segment.

        It sends no request. An invalid name is the error of each call. The client keeps the ids until it is closed.
        """
        return Namespace(self._core, self._core.source(name, is_text=False))

    def texts(self, name: str) -> Texts:
        """Returns a handle for the ids of a namespace with a text form. Otherwise it is like `namespace`."""
        return Texts(self._core, self._core.source(name, is_text=True))

    def close(self) -> None:
        """Drops all ids and closes the connections. Calls that wait and all later calls raise `Closed`."""
        self._core.close()
        self._core.join()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class _Ids(HandleBase[T]):
    """The ids of one namespace."""

    __slots__ = ()

    def next(self) -> T:
        """Returns the next id.

        It takes less than a microsecond while ids are in memory. Otherwise it waits for a server, up to `timeout`. Each error is
        an `Error`; `temporary` says whether to retry.
        """
        drawn = self._source.draw_one()
        return drawn if drawn is not None else _take(self._source, 1)[0]

    def next_many(self, count: int) -> list[T]:
        """Returns `count` ids, 1 to 1,000,000: first those in memory, the rest from the servers.

        The errors are those of `next`, and `InvalidCount`. Ids drawn before an error are lost.
        """
        return _take(self._source, count)


class Namespace(_Ids[int]):
    """The ids of one namespace. Any number of threads may use it."""

    __slots__ = ()


class Texts(_Ids[str]):
    """The ids of one namespace with a text form, such as `ORD-000017`. Any number of threads may use it."""

    __slots__ = ()


def _take(source: Source[T], count: int) -> list[T]:
    arrived = threading.Event()
    waiter = source.take(count, arrived.set)
    if waiter.result is None:
        try:
            arrived.wait(waiter.deadline - time.monotonic())
        except BaseException:
            source.leave(waiter)
            raise
    return source.result(waiter)
