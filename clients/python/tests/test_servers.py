"""Which server is tried next."""

import random

import pytest

from snowmint._failure import Scope
from snowmint._servers import Choice, Health

NOW = 1000.0


def new(servers: int) -> tuple[Choice, list[Health]]:
    return Choice(servers, random.Random(7)), [Health() for _ in range(servers)]


@pytest.mark.parametrize("scope", Scope)
def test_the_first_server_that_works_is_asked(scope: Scope) -> None:
    choice, own = new(3)
    assert choice.order(own, NOW) == [0, 1, 2]
    choice.failed(own, 0, scope, NOW)
    assert choice.order(own, NOW) == [1, 2, 0]
    choice.failed(own, 1, scope, NOW + 0.06)
    assert choice.order(own, NOW + 0.061) == [2, 0, 1]
    assert choice.order(own, NOW + 0.161) == [0, 1, 2]
    choice.succeeded(own, 0)
    assert choice.order(own, NOW + 0.061) == [0, 2, 1]


def test_a_server_that_keeps_failing_is_left_out_longer() -> None:
    choice, own = new(2)
    for failures in range(40):
        choice.failed(own, 0, Scope.NAMESPACE, NOW)
        most = min(0.1 * 2**failures, 10.0)
        assert most / 2 <= own[0].left_out_until - NOW <= most + 1e-9


def test_retry_after() -> None:
    """The later one of the server and the namespace counts."""
    choice, own = new(2)
    choice.failed(own, 0, Scope.SERVER, NOW, 2.0)
    choice.failed(own, 0, Scope.NAMESPACE, NOW, 1.0)
    choice.failed(own, 1, Scope.NAMESPACE, NOW, 3.0)
    assert choice.order(own, NOW + 1.999) == []
    assert choice.pause(own, 0, NOW + 1.0) == 1.0
    assert choice.closed_for(own, NOW + 0.5) == 1.5
    assert choice.order(own, NOW + 2.0) == [0]
    assert choice.order(own, NOW + 3.0) == [0, 1]
    assert choice.order([Health(), Health()], NOW) == [1], "another namespace waits only for the server"
    choice.failed(own, 0, Scope.SERVER, NOW + 1.0)
    assert choice.order(own, NOW + 1.999) == [], "a request that was sent before may fail without a Retry-After"


def test_pauses_grow() -> None:
    choice, own = new(2)
    for rounds in range(40):
        most = min(0.02 * 2**rounds, 1.0)
        assert most / 2 <= choice.pause(own, rounds, NOW) <= most


def test_hedges_are_a_tenth_of_the_requests() -> None:
    choice, _ = new(2)
    assert sum(choice.may_hedge() for _ in range(50)) == 10
    hedged = 0
    for _ in range(1000):
        choice.requested()
        hedged += choice.may_hedge()
    assert hedged == 100
