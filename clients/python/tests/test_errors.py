"""What errors say, and what they mean."""

import json
import pickle
from pathlib import Path

import pytest

import snowmint
from snowmint._connections import Answer
from snowmint._errors import shown
from snowmint._failure import Retry, Scope, meaning
from snowmint._request import refusal, retry_after

KINDS = [it for it in vars(snowmint).values() if isinstance(it, type) and issubclass(it, snowmint.Error)]
NOON = "Sun, 06 Nov 1994 12:00:00 GMT"


def test_the_table_of_errors() -> None:
    rows = json.loads((Path(__file__).parents[2] / "errors.json").read_text())["errors"]
    assert len(rows) > 50
    for row in rows:
        expected = getattr(snowmint, row["kind"]), Retry[row["retry"].upper()], Scope[row["concerns"].upper()]
        assert meaning(row["status"], row["problem"] or "") == expected, row


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickle(kind: type[snowmint.Error]) -> None:
    error = kind("text", "orders", "http://a", 503, 1.5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert kind.__module__ == "snowmint"
    assert kind.temporary == (kind in (snowmint.Unavailable, snowmint.OverQuota))


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("30", "", 30.0),
        ("0", "", 0.0),
        ("61", "", 60.0),
        ("18446744073709551615", "", 60.0),
        ("9" * 5000, "", 60.0),
        ("", "", None),
        ("soon", "", None),
        ("-3", "", None),
        ("\u0663", "", None),
        ("Sun, 06 Nov 1994 12:00:40 GMT", NOON, 40.0),
        ("Sun, 06 Nov 1994 11:00:00 GMT", NOON, 0.0),
        ("Mon, 01 Jan 2300 00:00:00 GMT", NOON, 60.0),
        ("Mon, 99 Jan 2300 00:00:00 GMT", NOON, None),
        # Without a date in the answer, it counts from now.
        (NOON, "", 0.0),
    ],
)
def test_retry_after(value: str, date: str, expected: float | None) -> None:
    assert retry_after({"retry-after": value, "date": date}) == expected


def test_texts_of_servers_show_no_token_and_no_control_characters() -> None:
    detail = "no Bearer sm_hunter2\u001b[31m\u202ered " + "x" * 5000
    answer = Answer(403, {}, json.dumps({"type": "urn:snowmint:forbidden", "detail": detail}).encode())
    text = str(refusal("http://a", answer, "sm_hunter2").error("orders"))
    assert text.startswith("http://a: status 403: no Bearer (token)\\u{1b}[31m\\u{202e}red xx")
    assert "hunter2" not in text
    assert len(text) < 4500


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"type":5,"detail":[]}', b"[" * 10_000, b"<html>"])
def test_without_a_problem_document_the_status_decides(body: bytes) -> None:
    failure = refusal("http://a", Answer(502, {"retry-after": "5"}, body), None)
    assert (failure.kind, failure.retry, failure.after) == (snowmint.Unavailable, Retry.ELSEWHERE, 5.0)
    assert failure.detail == "status 502: Bad Gateway"


def test_shown() -> None:
    assert shown("aä\n", 10) == "aä\\u{a}"
    assert shown("abc", 2) == "ab… (3 characters)"
