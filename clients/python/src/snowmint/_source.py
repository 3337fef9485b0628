"""The ids of one namespace: those in memory, the callers that wait for more, and the task that requests them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, cast

from ._buffer import Buffer, Span, T
from ._clock import Clock
from ._engine import Engine
from ._errors import MAX_COUNT, Error, closed, invalid_count, invalid_namespace
from ._failure import Failure, timed_out
from ._fetcher import Fetched, Fetcher, Outcome, State, Unfilled
from ._options import Options, is_namespace
from ._target import MAX_TEXTS, Target
from ._threads import drop

_AFTER_REJECTION = 1.0
"""The time in seconds after a final error in which ids are requested only for waiting callers."""


@dataclass(eq=False)
class Waiter:
    """A call that waits for ids."""

    missing: int
    got: list[Span]
    deadline: float
    wake: Callable[[], None]
    """Ends the wait; any thread may call it."""
    result: list[Span] | Error | None = None
    has_left: bool = False
    """The call returned without an answer."""
    is_renewed: bool = False
    """Ids that became too old while the call waited were dropped. Only once, because a call whose answers take longer than the
    maximum age would never end."""

    def settle(self, result: list[Span] | Error) -> None:
        self.result = result
        self.wake()

    def drop_old(self, clock: Clock) -> None:
        if self.is_renewed:
            return
        young = [span for span in self.got if not clock.is_over(span.until)]
        if len(young) < len(self.got):
            self.missing += sum(len(span.ids) for span in self.got) - sum(len(span.ids) for span in young)
            self.got = young
            self.is_renewed = True


class Source(Generic[T]):
    """Hands out the ids of one namespace. Any number of threads may use it."""

    def __init__(self, name: str, is_text: bool, options: Options, clock: Clock) -> None:
        self.name = name
        self._is_text = is_text
        self._options = options
        self._clock = clock
        self._mono = clock.mono
        self._wall = clock.wall
        self._max_age = options.max_age_of(name)
        self._keeps = options.buffer[1] > 0
        self._stopped: Callable[[str], Error] | None = None if is_namespace(name) else invalid_namespace
        self._buffer: Buffer[T] = Buffer(clock)

    def forget(self) -> None:
        """Drops the ids of the parent in a forked child."""
        inherited, self._buffer = self._buffer, Buffer[T](self._clock)
        # The fork may have come during a draw, for instance in a signal handler.
        inherited.clear()

    def begin(self, engine: Engine, fetcher: Fetcher) -> None:
        """Begins without ids: at first, and after `forget`, without the locks that another thread of the parent may have held."""
        self._lock = threading.Lock()
        self._engine = engine
        self._fetcher = fetcher
        self._state = State(self.name, self._is_text, len(fetcher.servers))
        self._target = Target(self._options.buffer, self._max_age, MAX_TEXTS if self._is_text else MAX_COUNT)
        # In the order of the calls.
        self._waiters: deque[Waiter] = deque()
        # How many of them have left, at most.
        self._left = 0
        # A call that does not wait found no id.
        self._was_empty = False
        # How often the ids were discarded. Answers to requests of an earlier generation are dropped.
        self._generation = 0
        # The generation of the last call that found no id. Ids are requested ahead of calls only in this one.
        self._drawn_in = 0
        # The generation of the last request.
        self._fetched_in = 0
        self._rejected_at: float | None = None
        self._is_filling = False
        self._fetching: asyncio.Task[Fetched] | None = None

    # Calls of any thread.

    def draw_one(self) -> T | None:
        """Draws one id from memory; `None` if there is none."""
        turn = self._buffer.turn
        # In place of `is_over`: this is the path of nearly all calls.
        if turn.ages and (self._mono() >= turn.mono or self._wall() >= turn.wall):
            return None
        try:
            drawn = turn.pop()
        except IndexError:
            return None
        if len(turn.ids) < turn.mark:
            turn.mark = 0
            self._refill()
        return drawn

    def take(self, count: int, wake: Callable[[], None]) -> Waiter:
        """Draws ids. If the result of the waiter is missing, it comes later, and `wake` is called."""
        if type(count) is not int or not 1 <= count <= MAX_COUNT:
            raise invalid_count(self.name, count)
        with self._lock:
            self._check_stopped()
            got = self._buffer.draw(count)
            missing = count - sum(len(span.ids) for span in got)
            waiter = Waiter(missing, got, time.monotonic() + self._options.timeout, wake)
            if missing == 0:
                waiter.result = got
                if self._buffer.is_low():
                    self._start_filling()
                return waiter
            self._drawn_in = self._generation
            self._waiters.append(waiter)
            try:
                self._start_filling()
            except BaseException:
                self._waiters.pop()
                raise
            return waiter

    def leave(self, waiter: Waiter) -> None:
        """Ends a call that waits no longer. Its ids are lost, or go to the next one."""
        with self._lock:
            self._forget(waiter)

    def result(self, waiter: Waiter) -> list[T]:
        """Returns the ids of a call that waited until its answer or its deadline."""
        with self._lock:
            result = waiter.result
            if result is None:
                self._forget(waiter)
                result = timed_out(self.name, self._options.timeout, self._state.last)
        if isinstance(result, Error):
            raise result
        ids: list[T] = []
        for span in result:
            ids.extend(cast("Sequence[T]", span.ids))
        return ids

    def try_take(self) -> T | None:
        """Returns one id from memory, and never waits. It requests ids if there are none."""
        drawn = self.draw_one()
        if drawn is not None:
            return drawn
        with self._lock:
            self._check_stopped()
            got = self._buffer.draw(1)
            if not got:
                if self._keeps:
                    self._was_empty = True
                    self._drawn_in = self._generation
                    self._start_filling()
                return None
            if self._buffer.is_low():
                self._start_filling()
            return cast("T", got[0].ids[0])

    def buffered(self) -> int:
        with self._lock:
            return self._buffer.level()[0]

    def discard(self) -> None:
        """Drops the ids in memory and those on their way."""
        with self._lock:
            self._generation += 1
            self._was_empty = False
            self._remove_left()
            is_awaited = bool(self._waiters)
            for waiter in self._waiters:
                waiter.missing += sum(len(span.ids) for span in waiter.got)
                waiter.got = []
            self._buffer.clear()
        if not is_awaited:
            self._engine.call(self._end_fetch)

    def close(self) -> None:
        with self._lock:
            if self._stopped is None:
                self._stopped = closed
            self._buffer.clear()
            self._reject(closed)

    def _check_stopped(self) -> None:
        if self._stopped is not None:
            raise self._stopped(self.name)

    def _forget(self, waiter: Waiter) -> None:
        """Removes the calls that have left when they are the most, so that each costs little and none stays in memory."""
        waiter.has_left = True
        self._left += 1
        if 2 * self._left > len(self._waiters):
            self._remove_left()

    def _remove_left(self) -> None:
        self._left = 0
        self._waiters = deque(waiter for waiter in self._waiters if not waiter.has_left)

    def _refill(self) -> None:
        """Requests ids because few are left."""
        with self._lock:
            self._start_filling()

    def _start_filling(self) -> None:
        """Starts the task unless it runs. It looks for work again before it ends, so no wake-up is lost."""
        if not self._is_filling and self._stopped is None:
            self._engine.start(self._fill)
            self._is_filling = True

    def _reject(self, error: Callable[[str], Error]) -> None:
        """Gives every waiting call an error of its own."""
        for waiter in self._waiters:
            waiter.settle(error(self.name))
        self._waiters.clear()

    # The task, in the thread of requests.

    async def _fill(self) -> None:
        """Fills the buffer and serves the waiting calls, until nothing is to be requested."""
        try:
            while (ask := self._next_request()) is not None:
                count, generation = ask
                try:
                    fetched = await self._fetch(count)
                except Unfilled as unfilled:
                    if not self._settle_unfilled(count, unfilled):
                        return
                else:
                    if fetched is not None:
                        self._settle(fetched, generation)
        except BaseException:
            with self._lock:
                self._is_filling = False
            raise

    async def _fetch(self, count: int) -> Fetched | None:
        """Returns ids; `None` if they were discarded on their way."""
        fetching = self._fetching = asyncio.ensure_future(self._fetcher.fetch(self._state, count))
        try:
            await asyncio.wait({fetching})
            return None if fetching.cancelled() else fetching.result()
        finally:
            self._fetching = None
            drop(fetching)

    def _end_fetch(self) -> None:
        """Ends the requests of discarded ids, so that no retry and no hedge follows."""
        if self._fetching is not None and self._fetched_in != self._generation:
            self._fetching.cancel()

    def _next_request(self) -> tuple[int, int] | None:
        """Returns how many ids to request now, and in which generation; `None` ends the task."""
        with self._lock:
            self._serve_from_buffer()
            wanted = self._wanted()
            left, drawn = self._buffer.level()
            is_empty = left == 0 and self._was_empty
            if left == 0:
                self._was_empty = False
            is_low = self._drawn_in == self._generation and self._buffer.is_low()
            rests = self._rejected_at is not None and time.monotonic() - self._rejected_at < _AFTER_REJECTION
            if self._stopped is not None or (wanted == 0 and (rests or not (is_low or is_empty))):
                self._is_filling = False
                return None
            self._target.adapt(self._clock.mono(), drawn, ran_dry=wanted > 0)
            self._buffer.watch(self._target.low)
            self._fetched_in = self._generation
            return self._target.request(wanted, left), self._generation

    def _settle(self, fetched: Fetched, generation: int) -> None:
        """Hands ids to the waiting calls, and the rest to the buffer."""
        with self._lock:
            self._target.fitted()
            self._rejected_at = None
            self._state.last = None
            # Ids that were discarded since their request are dropped.
            if generation != self._generation or self._stopped is not None:
                return
            until = None if self._max_age is None else fetched.sent.after(self._max_age)
            rest = self._serve(deque(Span(ids, until) for ids in fetched.spans))
            if self._keeps:
                self._buffer.add(rest)
                self._buffer.watch(self._target.low)

    def _settle_unfilled(self, count: int, unfilled: Unfilled) -> bool:
        """Takes the end of a fetch without ids. Returns whether the task goes on."""
        failure = unfilled.failure
        with self._lock:
            if unfilled.outcome is Outcome.TOO_MANY:
                self._target.too_many(count)
                return True
            assert failure is not None
            if unfilled.outcome is Outcome.LATE:
                self._state.note(failure)
                self._reject_late(failure)
                self._is_filling = bool(self._waiters)
            elif unfilled.outcome is Outcome.POSTPONED:
                # Calls that came during the fetch may have time for it. After the others, the next call starts the task again.
                end = time.monotonic() + (failure.after or 0.0)
                while self._waiters and self._waiters[0].deadline < end:
                    self._waiters.popleft().settle(failure.error(self.name))
                self._is_filling = bool(self._waiters)
            else:
                self._reject(failure.error)
                self._rejected_at = time.monotonic()
            return self._is_filling

    def _reject_late(self, failure: Failure) -> None:
        """Gives an error to each call whose deadline has passed."""
        now = time.monotonic()
        while self._waiters and self._waiters[0].deadline <= now:
            self._waiters.popleft().settle(timed_out(self.name, self._options.timeout, failure))

    def _serve(self, spans: deque[Span]) -> Iterable[Span]:
        """Divides ids among the waiting calls, and returns the rest."""
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.has_left:
                # Only ids of earlier answers: this one is used however long it took, because the call had to wait for it.
                waiter.drop_old(self._clock)
                while waiter.missing > 0 and spans:
                    span = spans.popleft()
                    part = Span(span.ids[: waiter.missing], span.until)
                    if len(part.ids) < len(span.ids):
                        spans.appendleft(Span(span.ids[waiter.missing :], span.until))
                    waiter.missing -= len(part.ids)
                    waiter.got.append(part)
                if waiter.missing > 0:
                    break
                waiter.settle(waiter.got)
            self._waiters.popleft()
        return spans

    def _serve_from_buffer(self) -> None:
        """Serves calls that found the buffer empty just before it was filled."""
        wanted = self._wanted()
        if wanted > 0:
            self._serve(deque(self._buffer.draw(wanted)))

    def _wanted(self) -> int:
        """Removes the calls that have left, and returns how many ids the others wait for."""
        self._remove_left()
        for waiter in self._waiters:
            waiter.drop_old(self._clock)
        return sum(waiter.missing for waiter in self._waiters)
