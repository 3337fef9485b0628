"""What the clients for threads and for asyncio share."""

from __future__ import annotations

import os
import random
import threading
import weakref
from typing import Any, NamedTuple

from ._clock import Clock
from ._connections import Connections
from ._engine import Engine
from ._fetcher import Counts, Fetcher, Store
from ._options import Options, is_namespace, ssl_context
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
        inherited = self._engine
        self._end.detach()
        self._begin()
        for source in self._sources.values():
            source.begin(self._engine, self._fetcher)
        inherited.abandon()


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
