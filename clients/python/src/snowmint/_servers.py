"""Which server is tried next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ._failure import Scope

# How long in seconds a server is tried last after its first failure; doubled after each further one.
_LEFT_OUT, _LONGEST_LEFT_OUT = 0.1, 10.0
# The pause in seconds after every server failed; doubled after each further round.
_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
# How many hedged requests may follow each other. Each ten requests allow one more, so that hedging does not double the load when
# all servers are slow.
_HEDGES, _REQUESTS_PER_HEDGE = 10, 10


@dataclass
class Health:
    """The state of a server, or of a namespace at a server. Times are of the event loop."""

    failures: int = 0
    left_out_until: float = 0.0
    """Until then, other servers are tried first."""
    not_before: float = 0.0
    """Until then, the server gets no requests (`Retry-After`)."""


class Choice:
    """Decides which server is tried next.

    Servers are tried in the order of the list; those that failed come last for a while. Only the thread of requests uses it.
    """

    def __init__(self, servers: int, rng: random.Random) -> None:
        self._servers = [Health() for _ in range(servers)]
        self._random = rng
        self._credit = _HEDGES * _REQUESTS_PER_HEDGE

    def order(self, own: Sequence[Health], now: float) -> list[int]:
        """Returns the servers in the order in which to try them: those that work, then those left out, by when they return.

        Servers that asked for a later retry are missing. `own` is the health of the namespace at each server.
        """

        def until(server: int) -> float:
            at = max(self._servers[server].left_out_until, own[server].left_out_until)
            return at if at > now else 0.0

        may = (server for server in range(len(self._servers)) if self._not_before(own, server) <= now)
        return sorted(may, key=until)

    def succeeded(self, own: list[Health], server: int) -> None:
        """Records that a server returned ids of a namespace."""
        self._servers[server] = Health()
        own[server] = Health()

    def failed(self, own: list[Health], server: int, scope: Scope, now: float, retry_after: float = 0.0) -> None:
        """Records a failure, and how long the server gets no request."""
        state = own[server] if scope is Scope.NAMESPACE else self._servers[server]
        state.left_out_until = now + self._jitter(_doubled(_LEFT_OUT, state.failures, _LONGEST_LEFT_OUT))
        # Another request, sent before, may fail without a `Retry-After`.
        state.not_before = max(state.not_before, now + retry_after)
        state.failures += 1

    def pause(self, own: Sequence[Health], failed_rounds: int, now: float) -> float:
        """Returns how long to pause after a round in which no server returned ids; `failed_rounds` came before it."""
        pause = self._jitter(_doubled(_PAUSE, failed_rounds, _LONGEST_PAUSE))
        return max(pause, self.closed_for(own, now))

    def closed_for(self, own: Sequence[Health], now: float) -> float:
        """Returns how long it takes until some server accepts requests for the namespace again."""
        first = min(self._not_before(own, server) for server in range(len(self._servers)))
        return max(0.0, first - now)

    def requested(self) -> None:
        """Records a request that is not hedged."""
        self._credit = min(self._credit + 1, _HEDGES * _REQUESTS_PER_HEDGE)

    def may_hedge(self) -> bool:
        """Returns whether one more hedged request may be sent now, and records it."""
        if self._credit < _REQUESTS_PER_HEDGE:
            return False
        self._credit -= _REQUESTS_PER_HEDGE
        return True

    def _not_before(self, own: Sequence[Health], server: int) -> float:
        return max(self._servers[server].not_before, own[server].not_before)

    def _jitter(self, most: float) -> float:
        """Returns a time between half of `most` and `most`, so that clients do not return together."""
        return self._random.uniform(most / 2, most)


def _doubled(first: float, times: int, most: float) -> float:
    return min(first * 2.0 ** min(times, 30), most)
