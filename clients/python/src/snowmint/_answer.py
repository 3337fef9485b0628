"""Reads answers. One invalid range makes all of an answer invalid."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ._errors import LONGEST_NAME, shown

MAX_ID = 2**63 - 1
_LONGEST_RANGE = 2**24
_MAX_NUMBER = 2**64 - 1


class InvalidAnswer(Exception):
    """An answer with status 200 that is not valid as a whole."""

    def __init__(self, what: str, value: object = None, expected: str = "") -> None:
        super().__init__(what, value, expected)
        self._what, self._value, self._expected = what, value, expected

    def text(self, token: str | None) -> str:
        """Returns what is wrong. A server may have sent the token back: it is removed before the value is shortened."""
        if not self._expected:
            return self._what
        value = json.dumps(self._value, ensure_ascii=False)
        if token is not None:
            value = value.replace(json.dumps(token)[1:-1], "(token)")
        return f"{self._what} {shown(value, LONGEST_NAME)}: expected {self._expected}"

    def __str__(self) -> str:
        return self.text(None)


def read_ranges(body: bytes, count: int) -> list[range]:
    """Reads `{"ranges":[{"first":"5","count":3,"step":"1"}]}`, which must have exactly `count` ids."""
    values = _member(body, "ranges")
    ranges = [_read_range(value) for value in values]
    _compare(sum(map(len, ranges)), count)
    return ranges


def read_texts(body: bytes, count: int) -> list[Sequence[str]]:
    """Reads `{"ids":["A-7","A-8"]}`, which must have exactly `count` texts."""
    texts: list[str] = []
    for text in _member(body, "ids"):
        if not isinstance(text, str) or not text or not _is_unicode(text):
            raise InvalidAnswer("id", text, "a text")
        texts.append(text)
    _compare(len(texts), count)
    if len(set(texts)) != count:
        raise InvalidAnswer("an id comes twice")
    return [tuple(texts)]


def _compare(found: int, count: int) -> None:
    if found != count:
        raise InvalidAnswer(f"{found} ids: expected {count}")


def _member(body: bytes, name: str) -> list[object]:
    try:
        # Without the decoding here, `json` would accept UTF-16 and UTF-32 too.
        answer = json.loads(body.decode(), object_pairs_hook=_members, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"no JSON: {shown(str(error), LONGEST_NAME)}") from None
    if not isinstance(answer, dict):
        raise InvalidAnswer("no JSON object")
    value = answer.get(name)
    if not isinstance(value, list):
        raise InvalidAnswer(f"no list `{name}`")
    return value


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _read_range(value: object) -> range:
    if isinstance(value, dict):
        first, step = _number(value.get("first")), _number(value.get("step"))
        count = value.get("count")
        # A `bool` is an `int`, but not a number in JSON.
        if first is not None and step is not None and type(count) is int and 1 <= count <= _LONGEST_RANGE:
            if count == 1:
                step = 1
            if step >= 1 and first + step * (count - 1) <= MAX_ID:
                return range(first, first + step * count, step)
    raise InvalidAnswer("range", value, "ids from 0 to 2^63 - 1")


def _is_unicode(text: str) -> bool:
    """Returns whether a text has no unpaired surrogates, which `json` accepts and no database stores."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(text: object) -> int | None:
    """Reads ASCII digits without a sign. Python's `int` would accept spaces, signs, `_` and other digits."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0") or "0"
    # Python limits the length of a number that it reads.
    if len(digits) > 20:
        return None
    number = int(digits)
    return number if number <= _MAX_NUMBER else None
