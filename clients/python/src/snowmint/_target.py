"""How many ids to keep in memory."""

from __future__ import annotations

from ._errors import MAX_COUNT

MAX_TEXTS = 100_000
"""The server's maximum number of texts in one answer. It is also that of texts in memory."""

_FIRST = 16
_LONGEST_HORIZON = 1.0
_SHORTEST_PART = 1 / 16
"""The part of the horizon over which the use is measured at least: a shorter time says little about the rate."""


class Target:
    """Decides how many ids to keep in memory: the use in half of the maximum age, the horizon.

    It grows immediately, so that a burst is served from memory, but to 16 times the ids of the burst at most. It shrinks by half
    at most until it has covered a whole horizon, so that the first call after a rest requests only what it needs.
    """

    __slots__ = ("_drawn", "_horizon", "_limit", "_maximum", "_minimum", "_most", "_then", "size")

    def __init__(self, bounds: tuple[int, int], max_age: float | None, limit: int = MAX_COUNT) -> None:
        self._minimum, self._maximum = (min(bound, limit) for bound in bounds)
        self._limit = limit
        """The server's maximum count of one request."""
        self._horizon = _LONGEST_HORIZON if max_age is None else min(max_age / 2, _LONGEST_HORIZON)
        self._most = limit
        """The present maximum. It shrinks when no server returns that many."""
        # Ids were requested before: then, when `_drawn` ids had been drawn.
        self._then: float | None = None
        self._drawn = 0
        self.size = self._within(_FIRST)

    def _within(self, size: int) -> int:
        return max(self._minimum, min(size, self._maximum))

    def adapt(self, now: float, drawn: int, ran_dry: bool) -> None:
        """Adapts to the use: the number of ids drawn so far, and whether callers wait."""
        if self._then is not None:
            since, used = max(now - self._then, self._horizon * _SHORTEST_PART), drawn - self._drawn
            is_part = since < self._horizon
            size = int(used * self._horizon / since)
            # If nothing was drawn, callers wait because servers fail.
            if is_part and ran_dry and used > 0:
                size = max(size, 2 * self.size)
            self.size = self._within(max(size, self.size // 2) if is_part else size)
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
        self._most = min(2 * self._most, self._limit)

    def too_many(self, requested: int) -> None:
        """Records that no server returns this many ids."""
        self._most = max(1, requested // 4)
