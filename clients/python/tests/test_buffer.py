"""The ids in memory: each once, in order, none too old."""

import threading
import time
from types import FrameType
from typing import Any

import pytest

from snowmint._buffer import Buffer, Span
from snowmint._clock import Clock, Instant


class SetClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = Instant(1000.0, 1.8e9)
        super().__init__(lambda: self.at.mono, lambda: self.at.wall)

    def advance(self, mono: float, wall: float) -> None:
        self.at = Instant(self.at.mono + mono, self.at.wall + wall)


def draw_all(buffer: Buffer[int], count: int) -> list[object]:
    ids: list[object] = []
    while drawn := buffer.draw(count):
        ids += [it for span in drawn for it in span.ids]
    return ids


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_ids_come_once_and_in_order(count: int) -> None:
    buffer = Buffer[int](Clock())
    buffer.add([Span(range(10, 13), None), Span(range(20, 40, 5), None)])
    assert draw_all(buffer, count) == [10, 11, 12, 20, 25, 30, 35]
    buffer.add([Span(range(50, 51), None)])
    assert draw_all(buffer, count) == [50]
    assert buffer.level() == (0, 8)


def test_long_ranges_and_many_short_ones_are_laid_out_in_parts() -> None:
    buffer = Buffer[int](Clock())
    buffer.add([Span(range(10_000), None), *(Span(range(n, n + 1), None) for n in range(10_000, 20_000))])
    assert buffer.advance()
    assert len(buffer.turn.ids) == 4096
    assert draw_all(buffer, 7) == list(range(20_000))
    assert buffer.level() == (0, 20_000)


@pytest.mark.parametrize(
    ("mono", "wall"),
    [pytest.param(1.0, 1.0, id="both"), pytest.param(0.001, 1.0, id="suspended"), pytest.param(1.0, -3600.0, id="set back")],
)
def test_old_ids_are_dropped(mono: float, wall: float) -> None:
    clock = SetClock()
    buffer = Buffer[int](clock)
    buffer.add([Span(range(1, 3), clock.now().after(1.0)), Span(range(20, 22), clock.now().after(3.0))])
    clock.advance(0.999, 0.999)
    assert draw(buffer) == 1
    clock.advance(mono, wall)
    assert buffer.level() == (2, 1)
    assert draw_all(buffer, 1) == [20, 21]
    assert buffer.level() == (0, 3)


def draw(buffer: Buffer[int]) -> object:
    return buffer.draw(1)[0].ids[0]


def test_clear() -> None:
    buffer = Buffer[int](Clock())
    buffer.add([Span(range(1, 6), None), Span(range(10, 15), None)])
    buffer.draw(2)
    old = buffer.turn
    buffer.clear()
    assert draw_all(buffer, 1) == []
    assert not old.ids, "a thread that already has the turn must get nothing"
    assert buffer.level() == (0, 2)
    buffer.add([Span(range(20, 21), None)])
    assert draw_all(buffer, 1) == [20]


def test_the_low_mark_follows_the_ids() -> None:
    buffer = Buffer[int](Clock())
    buffer.add([Span(range(15), None)])
    buffer.advance()
    buffer.watch(10)
    assert buffer.turn.mark == 10
    buffer.add([Span(range(15, 19), None)])
    buffer.watch(10)
    assert buffer.turn.mark == 6
    buffer.draw(9)
    assert not buffer.is_low()
    buffer.draw(1)
    assert buffer.is_low()
    assert len(buffer.turn.ids) < buffer.turn.mark
    buffer.watch(10)
    assert buffer.turn.mark == 0, "few ids are left already: no further report"


def yielding(frame: FrameType, event: str, arg: object) -> Any:  # noqa: ARG001
    """Lets another thread run before each instruction of Python code: the interpreter alone rarely switches between two."""
    frame.f_trace_opcodes = True
    time.sleep(0)
    return yielding


def test_concurrent_draws_never_get_the_same_id() -> None:
    """Within a turn, and while turns begin and end."""
    buffer = Buffer[int](Clock())
    total = 0
    for count in (500, *[1] * 50, *[7] * 50):
        buffer.add([Span(range(total, total + count), None)])
        total += count
    lock = threading.Lock()
    drawn: list[list[int]] = [[] for _ in range(4)]
    begin = threading.Barrier(len(drawn))

    def run(ids: list[int]) -> None:
        begin.wait()
        while True:
            try:
                ids.append(buffer.turn.pop())
            except IndexError:
                with lock:
                    if not buffer.advance():
                        return

    threading.settrace(yielding)
    try:
        threads = [threading.Thread(target=run, args=(ids,)) for ids in drawn]
        for thread in threads:
            thread.start()
    finally:
        threading.settrace(None)
    for thread in threads:
        thread.join()
    assert sorted(it for ids in drawn for it in ids) == list(range(total))
