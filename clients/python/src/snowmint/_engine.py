"""The thread that sends the requests of a client."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine

from ._connections import Connections

_abandoned: list[Engine] = []
"""Engines of the parent process. Their event loops share a selector with the parent, so no destructor may touch them."""


class Engine:
    """An event loop in a thread of its own, which starts with the first task.

    The calls of threads and those of any event loop use the same one, so a program that blocks its own event loop does not delay
    requests.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._is_stopped = False
        self._loop: asyncio.SelectorEventLoop | None = None
        self._selector: selectors.BaseSelector | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, task: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs a task in the thread. After `stop`, does nothing."""
        with self._lock:
            if self._is_stopped:
                return
            if self._loop is None:
                self._start()
            assert self._loop is not None
            self._call(self._loop, lambda: self._begin(task))

    def call(self, call: Callable[[], None]) -> None:
        """Runs a call in the thread, if there is one."""
        loop = self._loop
        if loop is not None:
            self._call(loop, call)

    def stop(self) -> None:
        """Cancels all tasks and ends the thread. Any thread may call it, even a destructor."""
        self._is_stopped = True
        loop = self._loop
        if loop is not None:
            self._call(loop, self._cancel)

    def join(self) -> None:
        """Waits until the thread has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The limit is for the end of the interpreter, at which the thread may not run any more.
            thread.join(timeout=1.0)

    def abandon(self) -> None:
        """Releases in a forked child what it inherited, without any effect on the parent."""
        self._is_stopped = True
        _abandoned.append(self)
        try:
            self._connections.close_inherited()
            if self._selector is not None:
                self._selector.close()
        except OSError:
            # Some systems have closed them already. An error here would keep the ids of the parent in other clients.
            pass

    def _start(self) -> None:
        # The policy of the program may have another kind of loop.
        self._selector = selectors.DefaultSelector()
        loop = asyncio.SelectorEventLoop(self._selector)
        thread = threading.Thread(target=self._run, args=(loop,), name="snowmint", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads.
            loop.close()
            raise
        except BaseException:
            # An interrupt may come before or after the thread has begun. If it runs, it ends.
            loop.call_soon_threadsafe(loop.stop)
            raise
        self._loop, self._thread = loop, thread

    @staticmethod
    def _call(loop: asyncio.SelectorEventLoop, call: Callable[[], None]) -> None:
        try:
            # Without the context of the caller, which the task would keep alive.
            loop.call_soon_threadsafe(call, context=contextvars.Context())
        except RuntimeError:
            # `stop` has ended the thread.
            pass

    @staticmethod
    def _run(loop: asyncio.SelectorEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _begin(self, task: Callable[[], Coroutine[None, None, None]]) -> None:
        assert self._loop is not None
        if self._is_stopped:
            # `stop` may have come before the loop was there.
            self._cancel()
            return
        running = self._loop.create_task(task())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        assert self._loop is not None
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._connections.close()
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        assert self._loop is not None
        # Cancelled tasks close their connections first.
        if asyncio.all_tasks(self._loop):
            self._loop.call_soon(self._end)
        else:
            self._loop.call_soon(self._loop.stop)
