"""Requests ids from several servers: from one after the other, or from a second one while the first is slow."""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from ._answer import InvalidAnswer, read_ranges, read_texts
from ._clock import Clock, Instant
from ._connections import Answer
from ._errors import LONGEST_NAME, AnotherStore, OverQuota, shown
from ._failure import Failed, Failure, Retry, Scope, of_another_store, unavailable
from ._http import BrokenAnswer
from ._options import Server
from ._request import Ask, RequestIds, refusal, request, unsent
from ._servers import Choice, Health
from ._threads import drop, within
from ._token import Token

_LONGEST_ATTEMPT = 2.0
"""Limit in seconds of one request to one server; shorter if the caller's is, so that there is time for another server."""
_SHARE_TO_MAKE = 0.8
"""The part of it that the server may spend on making ids."""


T = TypeVar("T")


class Post(Protocol):
    """What sends a request: `Connections`."""

    async def post(self, server: Server, request: bytes, request_id: str, most: int, read: Callable[[Answer], T]) -> T: ...


class State:
    """A namespace as requests see it. Only the thread of requests changes it."""

    def __init__(self, name: str, is_text: bool, servers: int) -> None:
        self.name = name
        self.is_text = is_text
        self.health = [Health() for _ in range(servers)]
        self.last: Failure | None = None
        """What failed last since the last answer."""

    def note(self, failure: Failure) -> None:
        # A second store is what somebody has to know of, whatever else fails too.
        if failure.kind is AnotherStore or self.last is None or self.last.kind is not AnotherStore:
            self.last = failure


@dataclass(frozen=True)
class Fetched:
    """The ids of a valid answer."""

    spans: Sequence[Sequence[object]]
    sent: Instant
    """When the ids were requested; none is older."""


class Outcome(enum.Enum):
    """Why a fetch returned no ids."""

    REJECTED = enum.auto()
    """A server rejected the request."""
    TOO_MANY = enum.auto()
    """No server returns this many ids at once."""
    LATE = enum.auto()
    """The deadline has passed."""
    POSTPONED = enum.auto()
    """Every server asked to retry later than the deadline."""


class Unfilled(Exception):
    """Raised by a fetch that returned no ids."""

    def __init__(self, outcome: Outcome, failure: Failure | None = None) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.failure = failure


@dataclass
class Counts:
    """Numbers of requests since the client was created."""

    requests: int = 0
    hedged: int = 0
    failed: int = 0


@dataclass
class Store:
    """The store of the ids that a client returns: the one that was set, or that the first answer named."""

    identity: str | None
    named_by: str | None = None

    def check(self, server: str, named: str | None, token: str | None = None) -> None:
        """Rejects ids of another store."""
        if named is not None and self.identity is None:
            self.identity, self.named_by = named, server
        if named == self.identity or (named is None and self.named_by is not None):
            # Without a name it is a server of an earlier version, or behind a proxy that removes headers.
            return
        origin = "as set with `store`" if self.named_by is None else f"the store of {self.named_by}"
        found = "the answer names no store"
        if named is not None:
            found = f"the ids are of another store, {_shown(named, token)}"
        raise Failed(of_another_store(server, f"{found}: expected {_shown(self.identity or '', token)}, {origin}"))


class Fetcher:
    """Requests ids. Each answer is used once; if nobody awaits it any more, its ids are lost."""

    def __init__(
        self,
        servers: Sequence[Server],
        connections: Post,
        token: Token,
        store: Store,
        *,
        timeout: float,
        hedge_after: float | None,
        rng: random.Random,
        clock: Clock,
        counts: Counts | None = None,
    ) -> None:
        self.servers = servers
        self.store = store
        self.timeout = timeout
        self.hedge_after = hedge_after
        self.choice = Choice(len(servers), rng)
        self.counts = counts if counts is not None else Counts()
        self.attempt_timeout = min(_LONGEST_ATTEMPT, timeout / 2)
        self._connections = connections
        self._token = token
        self._clock = clock
        self._request_ids = RequestIds()

    async def fetch(self, state: State, count: int) -> Fetched:
        """Requests ids until a server returns them, a server rejects the request, or the timeout passes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        failed_rounds = 0
        while True:
            fetched = await _Round(self, state, count, deadline).run()
            if fetched is not None:
                return fetched
            now = loop.time()
            closed_for = self.choice.closed_for(state.health, now)
            if now < deadline < now + closed_for:
                said = state.last
                if said is None or said.after is None:
                    said = unavailable(self.servers[0].url, "server asked to retry later (Retry-After)")
                raise Unfilled(Outcome.POSTPONED, replace(said, after=closed_for))
            pause, left = self.choice.pause(state.health, failed_rounds, now), deadline - now
            failed_rounds += 1
            await asyncio.sleep(max(0.0, min(pause, left)))
            if pause >= left:
                raise Unfilled(Outcome.LATE, state.last or no_answer(self.servers[0].url, self.timeout))

    async def attempt(self, server: Server, state: State, count: int, limit: float) -> Fetched:
        """Sends one request to one server, and checks the answer; raises `Failed`."""
        sent = self._clock.now()
        self.counts.requests += 1
        try:
            spans, store, token = await within(limit, asyncio.ensure_future(self._request(server, state, count, limit)))
        except TimeoutError:
            raise Failed(no_answer(server.url, limit)) from None
        self.store.check(server.url, store, token)
        return Fetched(spans, sent)

    async def _request(
        self, server: Server, state: State, count: int, limit: float
    ) -> tuple[Sequence[Sequence[object]], str | None, str | None]:
        ask = Ask(state.name, state.is_text, count, limit * _SHARE_TO_MAKE, self._request_ids.next())
        token = await self._token.read(server.url)

        def read(answer: Answer) -> Failure | tuple[Sequence[Sequence[object]], str | None]:
            if answer.status != 200:
                return refusal(server.url, answer, token)
            spans = read_texts(answer.body, count) if state.is_text else read_ranges(answer.body, count)
            return spans, answer.headers.get("snowmint-store")

        try:
            found = await self._connections.post(server, request(server, ask, token), ask.id, ask.longest_answer, read)
        except (BrokenAnswer, OSError) as error:
            raise Failed(unsent(server.url, error)) from None
        except InvalidAnswer as error:
            raise Failed(unavailable(server.url, f"invalid answer: {error.text(token)}")) from None
        if isinstance(found, Failure):
            raise Failed(found)
        return *found, token


def _shown(name: str, token: str | None) -> str:
    return shown(name if token is None else name.replace(token, "(token)"), LONGEST_NAME)


def no_answer(server: str, within: float) -> Failure:
    return unavailable(server, f"no answer within {round(within, 3):g} s")


@dataclass
class _Round:
    """Sends one request to each server at most."""

    fetcher: Fetcher
    state: State
    count: int
    deadline: float
    waiting: dict[asyncio.Task[Fetched], tuple[int, float]] = field(default_factory=dict)
    """The requests without an answer, their servers, and when they were sent."""
    spent: list[tuple[int, Failure]] = field(default_factory=list)
    """Servers whose quota may have fewer ids left. They get the next request only if no other server returns ids."""
    is_over_quota: bool = False
    distrusted: int = 0
    """The number of servers whose certificate or store is another one."""

    async def run(self) -> Fetched | None:
        """Returns ids; `None` if no server returned any in this round."""
        try:
            return await self._run()
        finally:
            self._abandon()

    async def _run(self) -> Fetched | None:
        loop = asyncio.get_running_loop()
        fetcher = self.fetcher
        order = fetcher.choice.order(self.state.health, loop.time())
        if order:
            fetcher.choice.requested()
        asks, hedge_at = True, None
        while True:
            now = loop.time()
            if asks and order:
                self._ask(order.pop(0), now)
                may_hedge = bool(order) and fetcher.hedge_after is not None
                hedge_at = now + (fetcher.hedge_after or 0.0) if may_hedge else None
            elif not self.waiting:
                if self.is_over_quota and self.count > 1:
                    raise Unfilled(Outcome.TOO_MANY)
                return None
            until = self.deadline if hedge_at is None else min(hedge_at, self.deadline)
            done, _ = await asyncio.wait(self.waiting, timeout=max(0.0, until - now), return_when=asyncio.FIRST_COMPLETED)
            # In the order of the requests.
            for task in [it for it in self.waiting if it in done]:
                fetched = self._settle(task)
                if fetched is not None:
                    return fetched
            now = loop.time()
            if now >= self.deadline:
                return None
            asks = bool(done)
            if not done and hedge_at is not None and now >= hedge_at:
                hedge_at = None
                if fetcher.choice.may_hedge():
                    fetcher.counts.hedged += 1
                    asks = True

    def _ask(self, server: int, now: float) -> None:
        fetcher = self.fetcher
        limit = min(fetcher.attempt_timeout, self.deadline - now)
        attempt = fetcher.attempt(fetcher.servers[server], self.state, self.count, limit)
        self.waiting[asyncio.ensure_future(attempt)] = server, now

    def _settle(self, task: asyncio.Task[Fetched]) -> Fetched | None:
        """Takes what a server answered; `None` if another server may return ids."""
        server, _ = self.waiting.pop(task)
        try:
            fetched = task.result()
        except Failed as error:
            self._settle_failure(server, error.failure)
            return None
        for spent, failure in self.spent:
            self._fail(spent, failure)
        self.fetcher.choice.succeeded(self.state.health, server)
        return fetched

    def _settle_failure(self, server: int, failure: Failure) -> None:
        self.fetcher.counts.failed += 1
        now = asyncio.get_running_loop().time()
        is_beyond = failure.after is not None and now + failure.after > self.deadline
        if self.count > 1 and failure.kind is OverQuota and is_beyond:
            self.spent.append((server, failure))
        else:
            self._fail(server, failure)
        if failure.retry is Retry.NEVER:
            raise Unfilled(Outcome.REJECTED, failure)
        if failure.retry is Retry.FEWER and self.count > 1:
            raise Unfilled(Outcome.TOO_MANY)
        if failure.retry is Retry.AFTER_REPAIR:
            self.distrusted += 1
            # No retry within the caller's timeout will help.
            if self.distrusted == len(self.fetcher.servers):
                raise Unfilled(Outcome.REJECTED, failure)
        self.is_over_quota = self.is_over_quota or failure.kind is OverQuota
        self.state.note(failure)

    def _fail(self, server: int, failure: Failure) -> None:
        # After the others, the server is healthy.
        if failure.retry in (Retry.ELSEWHERE, Retry.AFTER_REPAIR):
            now = asyncio.get_running_loop().time()
            self.fetcher.choice.failed(self.state.health, server, failure.scope, now, failure.after or 0.0)

    def _abandon(self) -> None:
        """Gives up the servers that have not answered. Those that had enough time count as failed."""
        fetcher = self.fetcher
        now = asyncio.get_running_loop().time()
        enough = fetcher.attempt_timeout
        if fetcher.hedge_after is not None:
            enough = min(enough, fetcher.hedge_after)
        for task, (server, sent) in self.waiting.items():
            drop(task)
            fetcher.counts.failed += 1
            if now - sent >= enough:
                fetcher.choice.failed(self.state.health, server, Scope.SERVER, now)
