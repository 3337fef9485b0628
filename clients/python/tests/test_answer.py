"""Answers are read exactly, or not at all."""

import json
import random

import pytest

from snowmint._answer import MAX_ID, InvalidAnswer, read_ranges, read_texts


@pytest.mark.parametrize(
    ("body", "count", "expected"),
    [
        (
            '{"ranges":[{"first":"9007199254740993","count":3,"step":"1"},'
            '{"first":"9223372036854775807","count":1,"step":"18446744073709551615"}]}',
            4,
            [9007199254740993, 9007199254740994, 9007199254740995, MAX_ID],
        ),
        (' { "until" : [7, {"x": "}\\"]"}] , "ranges" : [ { "count" : 2 , "x":"\\\\", "step":"4", "first":"0" } ] } ', 2, [0, 4]),
        ('{"ranges":[{"first":"5","count":1,"step":"0"}]}', 1, [5]),
        ('{"ranges":[{"first":"007","count":2,"step":"01"}]}', 2, [7, 8]),
        ('{"ranges":[]}', 0, []),
    ],
)
def test_valid_ranges(body: str, count: int, expected: list[int]) -> None:
    assert [drawn for ids in read_ranges(body.encode(), count) for drawn in ids] == expected


GOOD = '{"first":"5","count":1,"step":"1"}'


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (f'{{"ranges":[{GOOD}]}}', 2),
        ('{"ranges":[{"first":"5","count":2,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"5","count":16777217,"step":"1"}]}', 16777217),
        ('{"ranges":[{"first":"9223372036854775806","count":3,"step":"1"}]}', 3),
        ('{"ranges":[{"first":"9223372036854775808","count":1,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"1","count":3,"step":"9223372036854775807"}]}', 3),
        ('{"ranges":[{"first":"1","count":1,"step":"18446744073709551616"}]}', 1),
        ('{"ranges":[{"first":"5","count":2,"step":"0"}]}', 2),
        ('{"ranges":[{"first":"5","count":2,"step":"-1"}]}', 2),
        ('{"ranges":[{"first":"5","count":1e0,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"5","count":1.0,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"5","count":true,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"5","count":0,"step":"1"}]}', 0),
        ('{"ranges":[{"first":"5_0","count":1,"step":"1"}]}', 1),
        ('{"ranges":[{"first":" 5","count":1,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"\u0667","count":1,"step":"1"}]}', 1),
        ('{"ranges":[{"first":"\u00b2","count":1,"step":"1"}]}', 1),
        ('{"ranges":[{"first":null,"count":1,"step":"1"}]}', 1),
        # What `json` alone would accept.
        (f'{{"ranges":[{GOOD}],"ranges":[{GOOD}]}}', 1),
        ('{"ranges":[{"first":"5","first":"6","count":1,"step":"1"}]}', 1),
        (f'{{"x":NaN,"ranges":[{GOOD}]}}', 1),
        (f'{{"ranges":[{GOOD}]}}{{}}', 1),
        ('{"RANGES":[]}', 0),
        ('{"ranges":[5]}', 1),
        ('{"ranges":{}}', 0),
        ("[]", 0),
        ("5", 0),
        ("", 0),
        ("[" * 100_000, 0),
        (f'{{"x":{"9" * 5000},"ranges":[]}}', 0),
    ],
)
def test_invalid_ranges(body: str, count: int) -> None:
    with pytest.raises(InvalidAnswer):
        read_ranges(body.encode(), count)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_other_encodings_are_invalid(encoding: str) -> None:
    with pytest.raises(InvalidAnswer):
        read_ranges(f'{{"ranges":[{GOOD}]}}'.encode(encoding), 1)


def test_each_cut_is_invalid() -> None:
    body = f'{{"ranges":[{GOOD}]}}'.encode()
    for end in range(len(body)):
        with pytest.raises(InvalidAnswer):
            read_ranges(body[:end], 1)


def test_mutated_answers_are_exact_or_invalid() -> None:
    """Each accepted mutation has the requested number of ids, all of them in range, as a plain reading of the JSON has them."""
    rng = random.Random(7)
    base = b'{"ranges":[{"first":"9223372036854775800","count":3,"step":"2"},{"first":"0","count":1,"step":"0"}]}'
    accepted = 0
    for _ in range(10_000):
        body = bytearray(base)
        for _ in range(rng.randint(1, 3)):
            body[rng.randrange(len(body))] = rng.choice(b'0123456789"{}[],:-+ .eE')
        try:
            ranges = read_ranges(bytes(body), 4)
        except InvalidAnswer:
            continue
        accepted += 1
        assert sum(map(len, ranges)) == 4
        assert all(0 <= drawn <= MAX_ID for ids in ranges for drawn in ids)
        plain = json.loads(body)["ranges"]
        assert [ids[0] for ids in ranges] == [int(it["first"]) for it in plain]
        assert [len(ids) for ids in ranges] == [it["count"] for it in plain]
    assert accepted > 30


def test_texts() -> None:
    assert read_texts(b'{"ids":["A-1","\\u00c4-2"]}', 2) == [("A-1", "Ä-2")]
    assert read_texts(b'{"ids":["\\ud83d\\ude00"]}', 1) == [("\U0001f600",)]
    for body in (
        b'{"ids":["A"]}',
        b'{"ids":["A","B","C"]}',
        b'{"ids":["A",""]}',
        b'{"ids":["A","\\u0041"]}',
        b'{"ids":["A",5]}',
        b'{"ids":["A","\\ud800"]}',
        b'{"ids":["A","\\ude00\\ud83d"]}',
        b'{"ids":["A","\xff"]}',
        b'{"ids":["A","\xed\xa0\x80"]}',
        b'{"ids":["A","B"],"ids":["A","B"]}',
        b'{"Ids":["A","B"]}',
        b"{}",
        b"",
    ):
        with pytest.raises(InvalidAnswer):
            read_texts(body, 2)


@pytest.mark.parametrize("before", ["", "x" * 190])
def test_no_part_of_a_token_is_shown(before: str) -> None:
    token = 'sm_hunter2"\\-' + "7" * 40
    with pytest.raises(InvalidAnswer) as raised:
        read_ranges(json.dumps({"ranges": [before + token]}).encode(), 1)
    assert "sm_" not in raised.value.text(token)
    assert "sm_" in raised.value.text("another")
