"""What the clients for threads and for asyncio share."""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple

from ._buffer import T
from ._clock import Clock
from ._connections import Connections
from ._engine import Engine
from ._fetcher import Counts, Fetcher, Store
from ._options import Options, Order, Path, is_namespace, read_options, ssl_context
from ._source import Source
from ._token import Token

_cores: weakref.WeakSet[Core] = weakref.WeakSet()


class Stats(NamedTuple):
    """Counts for metrics since the client was created, or since the fork of its process. `buffered` is the present number."""

    requests: int
    """Requests sent to servers, including hedged ones."""
    hedged: int
    """Requests sent to a second server because the first had not answered yet."""
    failed: int
    """Requests that failed, were rejected, or were abandoned."""
    buffered: int
    """Ids in memory, of all namespaces."""


class Core:
    """The namespaces of a client, its connections, and the thread that uses them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._context = ssl_context(options)
        self._clock = Clock()
        self._store = Store(options.store)
        self._sources: dict[tuple[str, bool], Source[Any]] = {}
        self._is_closed = False
        self._begin()
        _cores.add(self)

    def _begin(self) -> None:
        """Begins without connections and requests: at first, and in a forked child."""
        self._lock = threading.Lock()
        self._counts = Counts()
        connections = Connections(self._context)
        self._engine = Engine(connections)
        # A client that is no longer used ends its thread.
        self._end = weakref.finalize(self, self._engine.stop)
        self._end.atexit = False
        rng = random.Random()
        servers = list(self._options.servers)
        if self._options.order == "shuffled":
            rng.shuffle(servers)
        self._fetcher = Fetcher(
            servers,
            connections,
            Token(self._options.token, self._options.token_file),
            self._store,
            timeout=self._options.timeout,
            hedge_after=self._options.hedge_after,
            rng=rng,
            clock=self._clock,
            counts=self._counts,
        )

    def source(self, name: str, *, is_text: bool) -> Source[Any]:
        """Returns the ids of a namespace. All handles of a name share them."""
        with self._lock:
            source = self._sources.get((name, is_text))
            if source is None:
                source = Source[Any](name, is_text, self._options, self._clock)
                source.begin(self._engine, self._fetcher)
                if self._is_closed:
                    source.close()
                elif is_namespace(name):
                    self._sources[name, is_text] = source
            return source

    @property
    def store(self) -> str | None:
        return self._store.identity

    def stats(self) -> Stats:
        with self._lock:
            sources = list(self._sources.values())
        counts = self._counts
        buffered = sum(source.buffered() for source in sources)
        return Stats(counts.requests, counts.hedged, counts.failed, buffered)

    def close(self) -> None:
        """Drops all ids, rejects the calls that wait, and closes the connections."""
        with self._lock:
            self._is_closed = True
            sources = list(self._sources.values())
        for source in sources:
            source.close()
        self._engine.stop()

    def join(self) -> None:
        """Waits until the thread of a closed client has ended."""
        self._engine.join()

    def begin_in_child(self) -> None:
        """Begins in a forked child, without the ids and the connections of the parent."""
        # First, so that nothing of the parent can come out, even if the rest fails.
        for source in self._sources.values():
            source.forget()
        inherited = self._engine
        self._end.detach()
        self._begin()
        for source in self._sources.values():
            source.begin(self._engine, self._fetcher)
        inherited.abandon()


class ClientBase:
    """What the clients for threads and for asyncio have in common."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        order: Order = "shuffled",
        token: str | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        store: str | None = None,
        timeout: float = 5.0,
        hedge_after: float | None = 0.05,
        max_age: float | None = 1.0,
        namespace_max_age: Mapping[str, float | None] | None = None,
        buffer: tuple[int, int] = (0, 1_000_000),
    ) -> None:
        self._core = Core(
            read_options(
                servers,
                order=order,
                token=token,
                token_file=token_file,
                ca_file=ca_file,
                client_certificate=client_certificate,
                store=store,
                timeout=timeout,
                hedge_after=hedge_after,
                max_age=max_age,
                namespace_max_age=namespace_max_age,
                buffer=buffer,
            )
        )

    @property
    def store(self) -> str | None:
        """The identity of the store whose ids this client returns: the one that was set, or that the first answer named."""
        return self._core.store

    def stats(self) -> Stats:
        """Returns counts for metrics."""
        return self._core.stats()


class HandleBase(Generic[T]):
    """The ids of one namespace, for threads or for asyncio."""

    __slots__ = ("_core", "_source")

    def __init__(self, core: Core, source: Source[T]) -> None:
        # A client that nobody refers to would end.
        self._core = core
        self._source = source

    @property
    def name(self) -> str:
        """The name of the namespace."""
        return self._source.name

    def try_next(self) -> T | None:
        """Returns the next id if one is in memory.

        It never waits: if there is none, it starts a request in the background and returns `None`. It raises only `Closed` and
        `InvalidNamespace`. With a buffer of `(0, 0)` it never returns an id.
        """
        return self._source.try_take()

    @property
    def buffered(self) -> int:
        """The number of ids in memory."""
        return self._source.buffered()

    def discard_buffered(self) -> None:
        """Drops the ids in memory and those on their way. Nothing is requested until the next call.

        Call it before a snapshot of the machine or process that may be started more than once: otherwise each copy returns the
        same ids. No other call may be in progress.
        """
        self._source.discard()


def _after_fork_in_child() -> None:
    failure: Exception | None = None
    for core in list(_cores):
        try:
            core.begin_in_child()
        except Exception as error:
            # It must not keep the ids of the parent in other clients.
            failure = error
    if failure is not None:
        raise failure


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
