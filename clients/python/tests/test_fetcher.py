"""Requests to several servers: who gets them when, and which answer counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

import snowmint
import virtual
from snowmint._clock import Clock
from snowmint._connections import Answer
from snowmint._failure import Failed
from snowmint._fetcher import Fetched, Fetcher, Outcome, State, Store, Unfilled
from snowmint._options import Server
from snowmint._token import Token

T = TypeVar("T")
SERVERS = [Server(f"http://{name}", name, 80, False, name, "") for name in "abc"]


class Script:
    """Servers with a reply for each request: a delay in seconds, and then an answer or an error. The last one repeats."""

    def __init__(self, **replies: list[tuple[float, Answer | Exception]]) -> None:
        self.replies = replies
        self.log: list[tuple[str, float]] = []
        self.cancelled: list[str] = []
        self.began = asyncio.get_running_loop().time()

    def times(self, name: str) -> list[float]:
        return [round(at, 6) for server, at in self.log if server == name]

    async def post(self, server: Server, request: bytes, request_id: str, most: int, read: Callable[[Answer], T]) -> T:
        assert request.startswith(b"POST /v1/ranges/orders?count=")
        assert f"\r\nSnowmint-Request: {request_id}\r\n".encode() in request
        assert most >= 1024
        replies = self.replies[server.host]
        self.log.append((server.host, asyncio.get_running_loop().time() - self.began))
        delay, reply = replies.pop(0) if len(replies) > 1 else replies[0]
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self.cancelled.append(server.host)
            raise
        if isinstance(reply, Exception):
            raise reply
        return read(reply)


def ids(first: int, count: int = 1, store: str | None = None) -> Answer:
    body = f'{{"ranges":[{{"first":"{first}","count":{count},"step":"1"}}]}}'
    return Answer(200, {} if store is None else {"snowmint-store": store}, body.encode())


def status(number: int, **headers: str) -> Answer:
    return Answer(number, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


def fetcher(script: Script, *, timeout: float = 5.0, hedge_after: float | None = 0.05) -> tuple[Fetcher, State]:
    servers = SERVERS[: len(script.replies)]
    made = Fetcher(
        servers,
        script,
        Token(None, None),
        Store(None),
        timeout=timeout,
        hedge_after=hedge_after,
        rng=random.Random(7),
        clock=Clock(),
    )
    return made, State("orders", False, len(servers))


def firsts(fetched: Fetched) -> list[object]:
    return [span[0] for span in fetched.spans]


def in_virtual_time(test: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        virtual.run(test())  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


NEVER = 1e6


@in_virtual_time
async def test_a_slow_server_is_hedged_and_its_answer_dropped() -> None:
    script = Script(a=[(1.0, ids(1))], b=[(0.01, ids(2))])
    made, state = fetcher(script)
    assert firsts(await made.fetch(state, 1)) == [2]
    await asyncio.sleep(0.001)
    assert (script.times("a"), script.times("b"), script.cancelled) == ([0.0], [0.05], ["a"])
    assert (made.counts.requests, made.counts.hedged, made.counts.failed) == (2, 1, 1)
    # It had enough time, so it is tried last.
    assert firsts(await made.fetch(state, 1)) == [2]
    assert script.times("a") == [0.0]


@in_virtual_time
async def test_the_first_answer_wins_even_if_it_is_of_the_slow_server() -> None:
    script = Script(a=[(0.07, ids(1))], b=[(0.03, ids(2))])
    made, state = fetcher(script)
    assert firsts(await made.fetch(state, 1)) == [1]
    assert (made.counts.hedged, made.counts.failed) == (1, 1)
    # The other one had less than the time for a hedge, so it did not fail.
    assert made.choice.order(state.health, asyncio.get_running_loop().time()) == [0, 1]


@in_virtual_time
async def test_two_answers_at_the_same_moment_are_one_answer() -> None:
    script = Script(a=[(0.08, ids(1))], b=[(0.03, ids(2))])
    made, state = fetcher(script)
    assert len(firsts(await made.fetch(state, 1))) == 1
    assert made.counts.failed == 1


@in_virtual_time
async def test_a_third_server_follows_a_second_hedge() -> None:
    script = Script(a=[(NEVER, ids(1))], b=[(NEVER, ids(2))], c=[(0.0, ids(3))])
    made, state = fetcher(script)
    assert firsts(await made.fetch(state, 1)) == [3]
    assert (script.times("b"), script.times("c")) == ([0.05], [0.1])


@in_virtual_time
async def test_hedges_end_without_credit() -> None:
    script = Script(a=[(0.06, ids(1))], b=[(NEVER, ids(2))])
    made, state = fetcher(script)
    for _ in range(30):
        await made.fetch(state, 1)
    assert 10 <= made.counts.hedged <= 13


@in_virtual_time
async def test_without_hedging_the_next_server_follows_the_limit_of_a_request() -> None:
    script = Script(a=[(NEVER, ids(1))], b=[(0.0, ids(2))])
    made, state = fetcher(script, timeout=2.0, hedge_after=None)
    assert firsts(await made.fetch(state, 1)) == [2]
    assert script.times("b") == [1.0]
    assert script.cancelled == ["a"]


@in_virtual_time
async def test_an_answer_after_the_limit_is_dropped() -> None:
    script = Script(a=[(1.001, ids(1)), (0.0, ids(2))])
    made, state = fetcher(script, timeout=2.0)
    assert firsts(await made.fetch(state, 1)) == [2]


@in_virtual_time
async def test_an_answer_that_is_read_after_the_limit_is_dropped() -> None:
    script = Script(a=[(0.0, ids(1)), (0.0, ids(2))])
    made, state = fetcher(script, timeout=10.0)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual.VirtualLoop)
    # After the request was sent, and before its answer is read.
    loop.call_soon(loop.call_soon, loop.call_soon, loop.stall, 3.0)
    assert firsts(await made.fetch(state, 1)) == [2]
    assert made.counts.failed == 1


@in_virtual_time
async def test_the_timeout_ends_a_fetch() -> None:
    script = Script(a=[(NEVER, ids(1))], b=[(0.0, ConnectionRefusedError("refused"))])
    made, state = fetcher(script, timeout=1.0)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unfilled) as raised:
        await made.fetch(state, 1)
    assert raised.value.outcome is Outcome.LATE
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)
    assert raised.value.failure is not None
    assert raised.value.failure.kind is snowmint.Unavailable


@in_virtual_time
async def test_retry_after_holds_for_hedges_too() -> None:
    script = Script(a=[(0.0, status(503, retry_after="2")), (0.0, ids(1))], b=[(0.0, ids(2)), (NEVER, ids(3))])
    made, state = fetcher(script, timeout=10.0)
    assert firsts(await made.fetch(state, 1)) == [2]
    assert firsts(await made.fetch(state, 1)) == [1], "after the limit of the request to the other server"
    assert script.times("a") == [0.0, pytest.approx(2.0, abs=0.2)]
    assert script.times("a")[1] >= 2.0


@in_virtual_time
async def test_postponed_by_every_server() -> None:
    script = Script(a=[(0.0, status(503, retry_after="30"))], b=[(0.0, status(503, retry_after="20"))])
    made, state = fetcher(script)
    for _ in range(2):
        with pytest.raises(Unfilled) as raised:
            await made.fetch(state, 1)
        assert raised.value.outcome is Outcome.POSTPONED
        assert raised.value.failure is not None
        assert raised.value.failure.after == pytest.approx(20.0)
    assert len(script.log) == 2


@in_virtual_time
async def test_another_store_is_dropped() -> None:
    script = Script(a=[(0.0, ids(1, store="one")), (0.0, ConnectionResetError("reset"))], b=[(0.0, ids(2, store="two"))])
    made, state = fetcher(script, timeout=1.0)
    assert firsts(await made.fetch(state, 1)) == [1]
    with pytest.raises(Unfilled) as raised:
        await made.fetch(state, 1)
    assert raised.value.failure is not None
    assert raised.value.failure.kind is snowmint.AnotherStore
    assert "two: expected one, the store of http://a" in raised.value.failure.detail


def test_a_store_that_has_the_name_of_the_token() -> None:
    store = Store("smst_one")
    with pytest.raises(Failed) as raised:
        store.check("http://a", "x" * 195 + "hunter2", "hunter2")
    assert "hunt" not in raised.value.failure.detail


@in_virtual_time
async def test_a_cancelled_fetch_cancels_its_requests() -> None:
    script = Script(a=[(NEVER, ids(1))], b=[(NEVER, ids(2))])
    made, state = fetcher(script)
    task = asyncio.ensure_future(made.fetch(state, 1))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.001)
    assert sorted(script.cancelled) == ["a", "b"]
    assert len(asyncio.all_tasks()) == 1
