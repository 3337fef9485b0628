"""The ids in memory of one namespace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

from ._clock import Clock, Instant

T = TypeVar("T")

_LONGEST_TURN = 4096
"""Maximum number of ids that are laid out for callers at a time; the others are ranges, which need little memory."""


class Span(NamedTuple):
    """Ids of one answer: a `range` of numbers, or a tuple of texts."""

    ids: Sequence[object]
    until: Instant | None
    """When the ids become too old to return; `None` is never."""


class Turn(Generic[T]):
    """The ids from which callers draw at present.

    `deque.popleft` returns each id to one caller, whatever the number of threads: it is one step under the lock of the
    interpreter, and takes the lock of the deque in an interpreter without one. The iterator of a `range` would not.
    """

    __slots__ = ("ages", "ids", "mark", "mono", "pop", "until", "wall")

    ids: deque[T]
    pop: Callable[[], T]
    until: Instant | None
    mark: int
    """The number of ids below which a draw reports that few are left."""

    def __init__(self, ids: deque[T], until: Instant | None, mark: int) -> None:
        self.ids = ids
        self.pop = ids.popleft
        self.until = until
        # The same, as fast to read as possible.
        self.ages = until is not None
        self.mono, self.wall = until or (0.0, 0.0)
        self.mark = mark


class Buffer(Generic[T]):
    """Keeps ids in memory. Any number of threads call `draw_one`; the other methods need the lock of the namespace."""

    __slots__ = ("_clock", "_dropped", "_low", "_put", "_stock", "_waiting", "turn")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.turn: Turn[T] = Turn(deque(), None, 0)
        # The spans after the current turn, and their number of ids.
        self._stock: deque[Span] = deque()
        self._waiting = 0
        self._low = 0
        # The numbers of ids added so far, and of those dropped without a draw.
        self._put = 0
        self._dropped = 0

    def draw(self, count: int) -> list[Span]:
        """Draws up to `count` ids."""
        drawn: list[Span] = []
        while count > 0 and self.advance():
            turn = self.turn
            ids = _pop(turn, count)
            if ids:
                drawn.append(Span(ids, turn.until))
                count -= len(ids)
        return drawn

    def advance(self) -> bool:
        """Begins the next turn if the current one has no ids. Returns whether there are ids now."""
        if self.turn.ids and not self._clock.is_over(self.turn.until):
            return True
        self._end_turn()
        self._drop_old()
        if not self._stock:
            return False
        ids: deque[T] = deque()
        until = self._stock[0].until
        while self._stock and self._stock[0].until == until and len(ids) < _LONGEST_TURN:
            span = self._stock.popleft()
            part = span.ids[: _LONGEST_TURN - len(ids)]
            if len(part) < len(span.ids):
                self._stock.appendleft(Span(span.ids[len(part) :], until))
            ids.extend(cast("Sequence[T]", part))
        self._waiting -= len(ids)
        self.turn = Turn(ids, until, self._low - self._waiting)
        return True

    def add(self, spans: Iterable[Span]) -> None:
        """Adds ids behind all others."""
        for span in spans:
            self._stock.append(span)
            self._waiting += len(span.ids)
            self._put += len(span.ids)

    def watch(self, low: int) -> None:
        """Lets the draw that takes the buffer below `low` ids report it."""
        self._low = low
        mark = low - self._waiting
        # If few are left already, the report has come.
        self.turn.mark = mark if len(self.turn.ids) >= mark else 0

    def clear(self) -> None:
        """Drops every id."""
        self._end_turn()
        self._dropped += self._waiting
        self._waiting = 0
        self._stock.clear()

    def level(self) -> tuple[int, int]:
        """Returns the number of ids left, and of ids drawn so far."""
        self._drop_old()
        in_turn = len(self.turn.ids)
        drawn = self._put - self._dropped - self._waiting - in_turn
        if self._clock.is_over(self.turn.until):
            in_turn = 0
        return self._waiting + in_turn, drawn

    def is_low(self) -> bool:
        """Returns whether fewer ids are left than the last `watch` asked for."""
        return self.level()[0] < self._low

    def _end_turn(self) -> None:
        ended, self.turn = self.turn, Turn(deque(), None, 0)
        # Others may still draw from it.
        self._dropped += len(_pop(ended, _LONGEST_TURN))

    def _drop_old(self) -> None:
        while self._stock and self._clock.is_over(self._stock[0].until):
            span = self._stock.popleft()
            self._waiting -= len(span.ids)
            self._dropped += len(span.ids)


def _pop(turn: Turn[T], most: int) -> list[T]:
    ids: list[T] = []
    try:
        for _ in range(most):
            ids.append(turn.pop())  # noqa: PERF401, a comprehension would lose the ids before the exception
    except IndexError:
        pass
    return ids
