"""How many ids to keep."""

import pytest

from snowmint._target import MAX_TEXTS, Target


def steady(target: Target, per_second: float, requests: int) -> None:
    """Adapts a target to a steady rate: each time, half of it was used."""
    now, drawn = 0.0, 0
    for _ in range(requests):
        target.adapt(now, drawn, ran_dry=False)
        used = max(target.size // 2, 1)
        now += used / per_second
        drawn += used


@pytest.mark.parametrize(
    ("per_second", "max_age", "size"),
    [(2000, 1.0, 1000), (2000, 0.1, 100), (500, 60.0, 500), (10, 1.0, 5), (1e9, None, 1_000_000)],
)
def test_steady_use_is_kept_for_half_the_age(per_second: float, max_age: float | None, size: int) -> None:
    target = Target((0, 1_000_000), max_age)
    steady(target, per_second, 50)
    assert abs(target.size - size) <= 1


@pytest.mark.parametrize("max_age", [0.001, 1.0, None])
def test_a_burst_is_not_taken_for_a_rate(max_age: float | None) -> None:
    target = Target((0, 1_000_000), max_age)
    target.adapt(0.0, 0, ran_dry=True)
    target.adapt(0.00001, 100, ran_dry=True)
    assert target.size == 1600


def test_after_a_rest_only_the_use_counts() -> None:
    target = Target((0, 1_000_000), 1.0)
    target.adapt(0.0, 0, ran_dry=True)
    target.adapt(0.001, 1_000_000, ran_dry=True)
    target.adapt(0.5, 1_000_000, ran_dry=False)
    assert target.size == 500_000
    target.adapt(1.0, 1_000_030, ran_dry=True)
    assert (target.size, target.request(1, 0)) == (30, 31)


def test_no_more_texts_are_kept_than_one_answer_has() -> None:
    target = Target((0, 1_000_000), None, MAX_TEXTS)
    steady(target, 1e9, 50)
    assert (target.size, target.request(500_000, 0)) == (100_000, 100_000)
    target.fitted()
    assert target.request(500_000, 0) == 100_000
    assert Target((500_000, 500_000), 1.0, MAX_TEXTS).size == 100_000


def test_rare_use_keeps_nothing() -> None:
    target = Target((0, 1_000_000), 1.0)
    for minute in range(10):
        target.adapt(minute * 60.0, minute, ran_dry=True)
    assert (target.request(1, 0), target.low) == (1, 0)


def test_a_buffer_that_runs_dry_grows() -> None:
    target = Target((0, 1_000_000), 1.0)
    for request, drawn in enumerate([0, 16, 48, 112]):
        target.adapt(0.4 * request, drawn, ran_dry=True)
    assert target.size == 128
    target.adapt(1.201, 112, ran_dry=True)
    assert target.size == 64, "servers that fail must not make it grow"


def test_without_a_buffer_only_what_is_wanted_is_requested() -> None:
    target = Target((0, 0), 1.0)
    steady(target, 1000, 3)
    assert (target.request(1, 0), target.request(500, 0), target.low) == (1, 500, 0)


def test_the_bounds_hold() -> None:
    target = Target((50, 60), 1.0)
    assert (target.size, target.request(1, 0), target.request(0, 10)) == (50, 51, 40)
    steady(target, 1e6, 10)
    assert target.size == 60


def test_a_slow_layout_is_asked_for_fewer() -> None:
    target = Target((0, 1_000_000), 1.0)
    many = 2**62
    assert target.request(many, 0) == 1_000_000
    target.too_many(1_000_000)
    target.too_many(250_000)
    assert target.request(many, 0) == 62_500
    target.fitted()
    assert target.request(many, 0) == 125_000
    target.too_many(1)
    assert target.request(many, 0) == 1
