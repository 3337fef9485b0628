"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from ._buffer import T
from ._core import ClientBase, HandleBase
from ._source import Source


class AsyncClient(ClientBase):
    """A client for asyncio. Its options are those of `Client`.

    Any number of tasks may use it, of any event loop: requests have a thread of their own, so a task that is cancelled or an
    event loop that is busy does not disturb them. It starts no thread before the first call.
    """

    def namespace(self, name: str) -> AsyncNamespace:
        """Returns a handle for the ids of a namespace: plain numbers, of a snowflake layout or a segment.

        It sends no request. An invalid name is the error of each call. The client keeps the ids until it is closed.
        """
        return AsyncNamespace(self._core, self._core.source(name, is_text=False))

    def texts(self, name: str) -> AsyncTexts:
        """Returns a handle for the ids of a namespace with a text form. Otherwise it is like `namespace`."""
        return AsyncTexts(self._core, self._core.source(name, is_text=True))

    async def close(self) -> None:
        """Drops all ids and closes the connections. Calls that wait and all later calls raise `Closed`."""
        self._core.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Ids(HandleBase[T]):
    """The ids of one namespace."""

    __slots__ = ()

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
