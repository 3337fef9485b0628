"""Blocking calls of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Runs a blocking call in a thread of its own.

    `loop.run_in_executor` would make the end of the process wait for a file system or a name server that hangs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The client was closed in the meantime.
            pass

    try:
        threading.Thread(target=run, name="snowmint-call", daemon=True).start()
    except RuntimeError as error:
        # The system has no more threads.
        future.set_exception(OSError(str(error)))
    return future


async def within(limit: float, future: asyncio.Future[T]) -> T:
    """Awaits a future for `limit` seconds, and cancels it then.

    Unlike `asyncio.wait_for`, it drops a result that arrives after the limit, and its own cancellation always gets through.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    try:
        await asyncio.wait({future}, timeout=max(0.0, limit))
        if not future.done() or loop.time() > end:
            raise TimeoutError
        return future.result()
    finally:
        drop(future)


def drop(future: asyncio.Future[T]) -> None:
    """Cancels a future whose result nobody needs any more."""
    future.cancel()
    future.add_done_callback(_retrieve)


def _retrieve(future: asyncio.Future[T]) -> None:
    # asyncio logs exceptions that nobody retrieves.
    if not future.cancelled():
        future.exception()
