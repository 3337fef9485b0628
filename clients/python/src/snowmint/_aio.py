"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Generic

from ._buffer import T
from ._core import Core, Stats
from ._options import Order, Path, read_options
from ._source import Source


class AsyncClient:
    """A client for asyncio. Its options are those of `Client`.

    Any number of tasks may use it, of any event loop: requests have a thread of their own, so a task that is cancelled or an
    event loop that is busy does not disturb them. It starts no thread before the first call.
    """

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
        buffer: tuple[int, int] = (0, 100_000),
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

    def namespace(self, name: str) -> AsyncNamespace:
        """Returns a handle for the ids of a namespace: plain numbers, of a snowflake layout or a segment.

        It sends no request. An invalid name is the error of each call. The client keeps the ids until it is closed.
        """
        return AsyncNamespace(self._core, self._core.source(name, is_text=False))

    def texts(self, name: str) -> AsyncTexts:
        """Returns a handle for the ids of a namespace with a text form. Otherwise it is like `namespace`."""
        return AsyncTexts(self._core, self._core.source(name, is_text=True))

    @property
    def store(self) -> str | None:
        """The identity of the store whose ids this client returns: the one that was set, or that the first answer named."""
        return self._core.store

    def stats(self) -> Stats:
        """Returns counts for metrics."""
        return self._core.stats()

    async def close(self) -> None:
        """Drops all ids and closes the connections. Calls that wait and all later calls raise `Closed`."""
        self._core.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Ids(Generic[T]):
    """The ids of one namespace."""

    __slots__ = ("_core", "_source")

    def __init__(self, core: Core, source: Source[T]) -> None:
        # A client that nobody refers to would end.
        self._core = core
        self._source = source

    @property
    def name(self) -> str:
        """The name of the namespace."""
        return self._source.name

    async def next(self) -> T:
        """Returns the next id.

        It takes less than a microsecond while ids are in memory. Otherwise it waits for a server, up to `timeout`. Each error is
        an `Error`; `temporary` says whether to retry.
        """
        drawn = self._source.draw_one()
        return drawn if drawn is not None else (await _take(self._source, 1))[0]

    async def next_many(self, count: int) -> list[T]:
        """Returns `count` ids, 1 to 1,000,000: first those in memory, the rest from the servers.

        The errors are those of `next`, and `InvalidCount`. Ids drawn before an error are lost.
        """
        return await _take(self._source, count)

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


class AsyncNamespace(_Ids[int]):
    """The ids of one namespace. Any number of tasks may use it."""

    __slots__ = ()


class AsyncTexts(_Ids[str]):
    """The ids of one namespace with a text form, such as `ORD-000017`. Any number of tasks may use it."""

    __slots__ = ()


async def _take(source: Source[T], count: int) -> list[T]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()

    def arrive() -> None:
        if not arrived.done():
            arrived.set_result(None)

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(arrive)
        except RuntimeError:
            # The event loop of the caller was closed in the meantime.
            pass

    waiter = source.take(count, wake)
    if waiter.result is None:
        timeout = loop.call_later(waiter.deadline - time.monotonic(), arrive)
        try:
            await arrived
        except BaseException:
            source.leave(waiter)
            raise
        finally:
            timeout.cancel()
    return source.result(waiter)
