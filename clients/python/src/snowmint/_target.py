"""How many ids to keep in memory."""

from __future__ import annotations

from ._errors import MAX_COUNT

_FIRST = 16
_LONGEST_HORIZON = 1.0
_SHORTEST_USE = 0.001
"""Minimum time in seconds to measure the use by: a shorter one says little about the rate."""


class Target:
    """Decides how many ids to keep in memory: the use in half of the maximum age.

    It grows immediately and shrinks by half at most, so that a burst is served from memory and an idle program soon keeps
    nothing.
    """

    __slots__ = ("_drawn", "_horizon", "_maximum", "_minimum", "_most", "_then", "size")

    def __init__(self, bounds: tuple[int, int], max_age: float | None) -> None:
        self._minimum, self._maximum = bounds
        self._horizon = _LONGEST_HORIZON if max_age is None else min(max_age / 2, _LONGEST_HORIZON)
        self._most = MAX_COUNT
        """Maximum count of one request. It shrinks when no server returns that many."""
        # Ids were requested before: then, when `_drawn` ids had been drawn.
        self._then: float | None = None
        self._drawn = 0
        self.size = self._within(_FIRST)

    def _within(self, size: int) -> int:
        return max(self._minimum, min(size, self._maximum))

    def adapt(self, now: float, drawn: int, ran_dry: bool) -> None:
        """Adapts to the use: the number of ids drawn so far, and whether callers wait."""
        if self._then is not None:
            since, used = max(now - self._then, _SHORTEST_USE), drawn - self._drawn
            size = int(used * self._horizon / since)
            # If nothing was drawn, callers wait because servers fail.
            if ran_dry and used > 0 and since < self._horizon:
                size = max(size, 2 * self.size)
            self.size = self._within(max(size, self.size // 2))
        self._then, self._drawn = now, drawn

    @property
    def low(self) -> int:
        """The number of ids below which the buffer is refilled."""
        return self.size // 2

    def request(self, wanted: int, left: int) -> int:
        """Returns the number of ids to request: those that callers wait for, and what the buffer lacks."""
        return max(1, min(wanted + max(0, self.size - left), self._most))

    def fitted(self) -> None:
        """Records that a server returned as many ids as requested."""
        self._most = min(2 * self._most, MAX_COUNT)

    def too_many(self, requested: int) -> None:
        """Records that no server returns this many ids."""
        self._most = max(1, requested // 4)
