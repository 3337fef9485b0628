"""The age of ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Instant(NamedTuple):
    """A reading of two clocks, in seconds.

    The monotonic clock never goes back, but may stop while the machine is suspended. The wall clock includes suspended time,
    but may be set back. An age is the larger of both.
    """

    mono: float
    wall: float

    def after(self, age: float) -> Instant:
        return Instant(self.mono + age, self.wall + age)


class Clock:
    """The two clocks."""

    __slots__ = ("mono", "wall")

    def __init__(self, mono: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.mono = mono
        self.wall = wall

    def now(self) -> Instant:
        return Instant(self.mono(), self.wall())

    def is_over(self, until: Instant | None) -> bool:
        """Returns whether one of the clocks has reached an instant; `None` is never."""
        return until is not None and (self.mono() >= until.mono or self.wall() >= until.wall)
