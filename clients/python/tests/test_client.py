"""The client for threads, against a server."""

from __future__ import annotations

import gc
import queue
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import snowmint
from servers import Request, Server, answer, serving

UNLIMITED: dict[str, Any] = {"hedge_after": None, "max_age": None, "timeout": 60.0}


def until(holds: Any) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.001)


def threads_of_clients() -> set[threading.Thread]:
    return {it for it in threading.enumerate() if it.name == "snowmint"}


def test_concurrent_calls_get_each_id_once(server: Server) -> None:
    """Threads draw one or several ids at the same time, with all kinds of calls."""
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with snowmint.Client([server.url], **UNLIMITED) as client:
            ids = client.namespace("orders")

            def draw(seed: int) -> list[int]:
                drawn: list[int] = []
                for n in range(1, 300):
                    match (n + seed) % 3:
                        case 0:
                            drawn += ids.next_many(n)
                        case 1:
                            drawn.append(ids.next())
                        case _:
                            one = ids.try_next()
                            drawn += [] if one is None else [one]
                return drawn

            with ThreadPoolExecutor(8) as pool:
                drawn = [it for each in pool.map(draw, range(8)) for it in each]
    finally:
        sys.setswitchinterval(switch_interval)
    assert len(drawn) > 10_000
    assert len(set(drawn)) == len(drawn)
    assert min(drawn) >= 1
    assert max(drawn) <= server.last


def test_each_call_of_one_thread_continues_where_the_last_one_ended(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED) as client:
        ids = client.namespace("orders")
        drawn = [ids.next() for _ in range(1000)]
        assert drawn == list(range(1, 1001))
        assert client.namespace("orders").next() == 1001, "all handles of a name share their ids"


def test_texts(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED, buffer=(4, 4)) as client:
        texts = client.texts("tickets")
        assert texts.next() == "A-1"
        assert texts.next_many(6) == ["A-2", "A-3", "A-4", "A-5", "A-6", "A-7"]
        assert server.requests.get(timeout=30).path == "/v1/ids/tickets"
        assert client.namespace("tickets").next() > 0, "numbers of the same name are other ids"
    with pytest.raises(snowmint.Closed):
        texts.try_next()
    with pytest.raises(snowmint.Closed):
        client.texts("others").next()


def test_stats_count_the_ids_in_memory(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED) as client:
        for name in ("a", "b"):
            client.namespace(name).next()
        assert client.stats() == snowmint.Stats(requests=2, hedged=0, failed=0, buffered=32)


def test_one_connection_serves_many_requests(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        for _ in range(50):
            client.namespace("orders").next()
    assert (server.requests.qsize(), server.connections) == (50, 1)


def test_an_answer_that_nobody_asked_for_is_dropped() -> None:
    """A server that sends two answers to one request must not shift the answers to later ones."""
    first = iter(range(1000, 2000, 10))

    def reply(_: Request) -> bytes:
        good = answer(f'{{"ranges":[{{"first":"{next(first)}","count":1,"step":"1"}}]}}')
        return good + answer('{"ranges":[{"first":"7","count":1,"step":"1"}]}')

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        assert [client.namespace("orders").next() for _ in range(5)] == [1000, 1010, 1020, 1030, 1040]
        assert server.connections == 5


def test_nothing_starts_before_the_first_call() -> None:
    before = threads_of_clients()
    with snowmint.Client(["http://127.0.0.1:1"]) as client:
        assert client.namespace("orders").buffered == 0
        assert client.stats() == (0, 0, 0, 0)
        assert threads_of_clients() <= before


def test_the_thread_ends_with_close(server: Server) -> None:
    before = threads_of_clients()
    with snowmint.Client([server.url]) as client:
        client.namespace("orders").next()
        assert len(threads_of_clients() - before) == 1
    until(lambda: threads_of_clients() <= before)
    client.close()


def test_the_thread_ends_with_the_last_reference(server: Server) -> None:
    before = threads_of_clients()
    client = snowmint.Client([server.url])
    ids = client.namespace("orders")
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert ids.next() == 1, "a handle keeps the ids"
    assert len(threads_of_clients() - before) == 1
    del ids
    gc.collect()
    until(lambda: threads_of_clients() <= before)


def test_close_ends_the_wait() -> None:
    with serving(may_answer=threading.Semaphore(0)) as server, ThreadPoolExecutor(1) as pool:
        client = snowmint.Client([server.url], **UNLIMITED)
        waiting = pool.submit(client.namespace("orders").next)
        server.requests.get(timeout=30)
        client.close()
        with pytest.raises(snowmint.Closed, match="create a new client"):
            waiting.result(timeout=30)


def test_an_interrupted_call_leaves_its_ids_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer = threading.Semaphore(0)
    with serving(may_answer=may_answer) as server, snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client:
        ids = client.namespace("orders")
        may_answer.release()
        assert ids.next() == 1

        def interrupted(*_: object) -> bool:
            until(lambda: server.requests.qsize() == 2)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(threading.Event, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ids.next_many(2)
        with ThreadPoolExecutor(1) as pool:
            drawn = pool.submit(ids.next_many, 2)
            until(lambda: any(not it.has_left for it in list(ids._source._waiters)))
            may_answer.release()
            assert drawn.result(timeout=30) == [2, 3]


def test_calls_that_have_left_are_forgotten() -> None:
    may_answer = threading.Semaphore(0)
    with (
        serving(may_answer=may_answer) as server,
        snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        ids = client.namespace("orders")
        waiting = pool.submit(ids.next)
        server.requests.get(timeout=30)
        left = [weakref.ref(waiter) for waiter in _calls_that_leave(ids._source, 1000)]
        assert sum(it() is not None for it in left) <= 2
        may_answer.release()
        assert waiting.result(timeout=30) == 1


def _calls_that_leave(source: Any, count: int) -> Iterator[Any]:
    for _ in range(count):
        waiter = source.take(1, lambda: None)
        source.leave(waiter)
        yield waiter


def test_discarded_ids_are_not_requested_again() -> None:
    """Neither retries nor hedges follow."""
    requests = []

    def reply(request: Request) -> bytes:
        requests.append(request)
        return answer("", 503)

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED) as client:
        ids = client.namespace("orders")
        assert ids.try_next() is None
        until(lambda: len(requests) >= 3)
        ids.discard_buffered()
        until(lambda: not ids._source._is_filling)
        count = len(requests)
        time.sleep(0.2)
        assert len(requests) <= count + 1, "one may have been on its way"


def test_a_later_call_has_time_for_retry_after() -> None:
    """The first call fails immediately, because the servers ask for a longer wait than it has left."""
    has_both = threading.Event()

    def reply(request: Request) -> bytes:
        if not has_both.is_set():
            has_both.wait(30)
            return answer("", 503, "Retry-After: 1\r\n")
        return answer(f'{{"ranges":[{{"first":"1","count":{request.count},"step":"1"}}]}}')

    with (
        serving(reply) as server,
        snowmint.Client([server.url], hedge_after=None, timeout=1.6, buffer=(0, 0)) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        ids = client.namespace("orders")
        first = pool.submit(ids.next)
        time.sleep(0.7)
        second = pool.submit(ids.next)
        until(lambda: len(ids._source._waiters) == 2)
        has_both.set()
        error = first.exception(timeout=30)
        assert isinstance(error, snowmint.Unavailable)
        assert error.retry_after == pytest.approx(1.0, abs=0.1)
        assert second.result(timeout=30) == 1


def test_every_waiting_call_gets_an_error_of_its_own() -> None:
    begin = threading.Event()

    def reply(_: Request) -> bytes:
        begin.wait(30)
        return answer('{"type":"urn:snowmint:forbidden","detail":"no"}', 403)

    with serving(reply) as server, snowmint.Client([server.url], **UNLIMITED) as client, ThreadPoolExecutor(3) as pool:
        ids = client.namespace("orders")
        calls = [pool.submit(ids.next) for _ in range(3)]
        until(lambda: len(ids._source._waiters) == 3)
        begin.set()
        errors = [call.exception(timeout=30) for call in calls]
        assert [type(it) for it in errors] == [snowmint.Forbidden] * 3
        assert len({id(it) for it in errors}) == 3, "a shared one would collect the tracebacks of all"


def test_a_fault_of_the_task_does_not_stop_the_namespace(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with snowmint.Client([server.url], hedge_after=None, timeout=0.2) as client:
        ids = client.namespace("orders")

        def fault(*_: object) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(client._core._fetcher, "fetch", fault)
            with pytest.raises(snowmint.Unavailable, match="no server has answered"):
                ids.next()
        client._core._options.__dict__["timeout"] = 60.0
        client._core._fetcher.timeout = 60.0
        assert ids.next() >= 1


def test_a_thread_that_does_not_start_is_an_error_of_its_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    before = threads_of_clients()
    with snowmint.Client([server.url], **UNLIMITED) as client:
        ids = client.namespace("orders")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError):
                ids.next()
        with monkeypatch.context() as patch:
            # `Thread.start` waits until the thread has begun.
            patch.setattr(threading.Event, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ids.next()
        assert ids.next() == 1
        until(lambda: len(threads_of_clients() - before) == 1)


def test_the_token_file_is_read_for_each_request(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with snowmint.Client([server.url], **UNLIMITED, buffer=(0, 0), token_file=file) as client:
        ids = client.namespace("orders")
        with pytest.raises(snowmint.Unauthorized, match="token file"):
            ids.next()
        for token in ("sm_one", "sm_two"):
            file.write_text(f" {token}\n")
            ids.next()
            assert server.requests.get(timeout=30).headers["authorization"] == f"Bearer {token}"
        for text in ("", "hunter2" * 10_000, "hunter2 x", "hunter2\n\nhunter2", "hunter2é"):
            file.write_text(text)
            with pytest.raises(snowmint.Unauthorized) as raised:
                ids.next()
            assert "hunter2" not in str(raised.value)
        with pytest.raises(queue.Empty):
            server.requests.get_nowait()


def test_a_token_file_that_hangs_holds_one_thread(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, reads = threading.Event(), []

    def content(file: str) -> str:
        reads.append(file)
        begin.wait(30)
        return "sm_one"

    monkeypatch.setattr("snowmint._token._content", content)
    with snowmint.Client([server.url], hedge_after=None, timeout=0.1, token_file=tmp_path / "token") as client:
        for _ in range(3):
            with pytest.raises(snowmint.Unavailable, match=r"no answer within|no server has answered"):
                client.namespace("orders").next()
        assert len(reads) == 1
        begin.set()
        until(lambda: client.namespace("orders").try_next() is not None)


BASE = ["http://localhost:1"]


@pytest.mark.parametrize(
    ("servers", "options", "says"),
    [
        ([], {}, "name one with `servers`"),
        ("http://localhost:1", {}, "expected a list of URLs"),
        (["localhost:8080"], {}, "expected http"),
        (["redis://h:1"], {}, "expected http"),
        (["http://"], {}, "expected http"),
        (["http://:1"], {}, "expected http"),
        ([""], {}, "expected http"),
        (["http://h:1\r\nX: y"], {}, "expected http"),
        (["http://h:99999"], {}, "expected http"),
        (["http://h:1/?a=hunter2"], {}, "expected no query"),
        (["http://h:1/#hunter2"], {}, "expected no query"),
        (["http:u:hunter2@h:1"], {}, "expected http"),
        (["http:///u:hunter2@h:1"], {}, "expected http"),
        (["u:hunter2@h:1"], {}, "expected http"),
        (["http://u:1?hunter2@h"], {}, "expected no query"),
        (["http://u/hunter2?x@h"], {}, "expected no query"),
        (["http://u:hunter2@h:1"], {}, "invalid server 'h': expected no user"),
        (["http://u:hunter2@h:x"], {}, "expected http"),
        (["http://u:hunter2@[h:1"], {}, "expected http"),
        (["http://a..b"], {}, "expected http"),
        (["http://.a"], {}, "expected http"),
        (BASE, {"order": "random"}, "invalid order 'random'"),
        (BASE, {"token": "hunter2 x"}, "expected visible ASCII"),
        (BASE, {"token": ""}, "expected visible ASCII"),
        (BASE, {"token": "hunter2", "token_file": "f"}, "not both"),
        (BASE, {"ca_file": "/nowhere.pem"}, "cannot use ca_file /nowhere.pem: [Errno 2]"),
        (BASE, {"ca_file": __file__}, "cannot use ca_file"),
        (BASE, {"client_certificate": (__file__, __file__)}, "cannot use client_certificate"),
        (BASE, {"client_certificate": ("a",)}, "the certificate and its key"),
        (BASE, {"store": "prod"}, "invalid store 'prod': expected smst_"),
        (BASE, {"timeout": 3600.1}, "invalid timeout 3600.1: expected 0.001 to 3600 seconds"),
        (BASE, {"timeout": 0}, "invalid timeout 0"),
        (BASE, {"timeout": float("nan")}, "invalid timeout nan"),
        (BASE, {"timeout": None}, "invalid timeout None"),
        (BASE, {"hedge_after": 0}, "invalid hedge_after 0"),
        (BASE, {"hedge_after": float("inf")}, "or None"),
        (BASE, {"hedge_after": 10**400}, "or None"),
        (BASE, {"max_age": 10**400}, "or None"),
        (BASE, {"max_age": 0.0001}, "invalid max_age 0.0001"),
        (BASE, {"namespace_max_age": {"a": 0}}, "invalid namespace_max_age of 'a' 0"),
        (BASE, {"buffer": (5, 4)}, "invalid buffer (5, 4)"),
        (BASE, {"buffer": (0, 1_000_001)}, "invalid buffer"),
        (BASE, {"buffer": 5}, "invalid buffer 5"),
        (BASE, {"buffer": (0, 5.0)}, "invalid buffer"),
    ],
)
def test_options_are_checked(servers: Any, options: dict[str, Any], says: str) -> None:
    for kind in (snowmint.Client, snowmint.AsyncClient):
        with pytest.raises(snowmint.InvalidOption) as raised:
            kind(servers, **options)
        assert isinstance(raised.value, ValueError)
        assert says in str(raised.value)
        assert "hunter2" not in str(raised.value)


def test_servers_keep_their_path() -> None:
    with serving() as server, snowmint.Client([server.url + "/base//"], **UNLIMITED) as client:
        client.namespace("orders").next()
        assert server.requests.get(timeout=30).path == "/base/v1/ranges/orders"


def test_a_host_name_is_resolved() -> None:
    with serving() as server, snowmint.Client([server.url.replace("127.0.0.1", "localhost")], **UNLIMITED) as client:
        assert client.namespace("orders").next() == 1
        assert server.requests.get(timeout=30).headers["host"].startswith("localhost:")


def test_options_that_are_printed_show_no_token() -> None:
    with snowmint.Client(BASE, token="sm_hunter2") as client:
        assert "hunter2" not in f"{client!r} {client._core._options!r}"


def test_the_fast_path_needs_no_lock(server: Server) -> None:
    """A thread that holds the lock of a namespace does not stop draws from memory."""
    with snowmint.Client([server.url], **UNLIMITED, buffer=(100, 100)) as client:
        ids = client.namespace("orders")
        assert [ids.next(), ids.next()] == [1, 2]
        with ids._source._lock:
            assert [ids._source.draw_one() for _ in range(10)] == list(range(3, 13))
