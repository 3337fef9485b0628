"""One request for ids, and what an answer without ids means."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from ._connections import Answer
from ._errors import LONGEST_MESSAGE, shown
from ._failure import Failure, Retry, meaning, unavailable, untrusted
from ._options import Server
from ._version import __version__

_LONGEST_RETRY_AFTER = 60.0
# Limits in bytes: an answer without its ids, and one id. Both are more than a server sends.
_LONGEST_FRAME, _LONGEST_ID = 1024, 128
_PROBLEM = "urn:snowmint:"

# The TLS alerts of a server that does not trust the client's certificate.
_CERTIFICATE_ALERTS = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
    "ALERT_CERTIFICATE_REQUIRED",
)


class RequestIds:
    """The ids of the requests that one thread sends. No request of any process has the same one.

    A proxy that sends an answer twice would otherwise answer the next request with it.
    """

    def __init__(self) -> None:
        self._random = secrets.token_hex(8)
        self._sent = itertools.count()

    def next(self) -> str:
        # A forked child may have the other two numbers of its parent.
        return f"{self._random}-{os.getpid()}-{next(self._sent)}"


@dataclass(frozen=True)
class Ask:
    """What to request: a number of ids of a namespace. The server may take `wait` seconds to make them."""

    namespace: str
    is_text: bool
    count: int
    wait: float
    id: str
    """Belongs to this request only; its answer repeats it."""

    @property
    def longest_answer(self) -> int:
        """Limit in bytes of the answer."""
        return _LONGEST_FRAME + self.count * _LONGEST_ID


def request(server: Server, ask: Ask, token: str | None) -> bytes:
    """Returns a request. POST, so that no cache answers and no proxy repeats it."""
    kind = "ids" if ask.is_text else "ranges"
    lines = [
        f"POST {server.path}/v1/{kind}/{ask.namespace}?count={ask.count}&wait={ask.wait:.3f} HTTP/1.1",
        f"Host: {server.authority}",
        f"User-Agent: snowmint-python/{__version__}",
        f"Snowmint-Request: {ask.id}",
        "Content-Length: 0",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def unsent(server: str, error: Exception) -> Failure:
    """Returns the failure of a connection, or of an answer that cannot be read."""
    text = shown(str(error) or type(error).__name__, LONGEST_MESSAGE)
    return untrusted(server, text) if _is_about_certificates(error) else unavailable(server, text)


def refusal(server: str, answer: Answer, token: str | None) -> Failure:
    """Reads why a server returned no ids."""
    kind_of_problem, detail = _problem(answer.body)
    if token is not None:
        detail = detail.replace(token, "(token)")
    kind, retry, scope = meaning(answer.status, kind_of_problem)
    text = shown(detail, LONGEST_MESSAGE) or _phrase(answer.status)
    return Failure(
        server=server,
        kind=kind,
        detail=f"status {answer.status}: {text}".rstrip(": "),
        retry=retry,
        status=answer.status,
        after=retry_after(answer.headers) if retry is Retry.ELSEWHERE else None,
        scope=scope,
    )


def retry_after(headers: dict[str, str]) -> float | None:
    """Returns the server's `Retry-After`: a number of seconds, or a date, which proxies send.

    A date counts from the `Date` of the answer, so the clocks need not agree.
    """
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return _LONGEST_RETRY_AFTER if len(text) > 9 else min(float(text), _LONGEST_RETRY_AFTER)
    at = _date(text)
    if at is None:
        return None
    now = _date(headers.get("date", ""))
    return max(0.0, min(at - (time.time() if now is None else now), _LONGEST_RETRY_AFTER))


def _date(text: str) -> float | None:
    """Reads a date of HTTP. The parser alone accepts other zones, and dates without one."""
    if not text.endswith(" GMT"):
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _problem(body: bytes) -> tuple[str, str]:
    """Returns the last part of Snowmint's problem type, and the detail. Without a readable body both are empty."""
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    kind = problem.get("type") if isinstance(problem, dict) else None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return (
        kind[len(_PROBLEM) :] if isinstance(kind, str) and kind.startswith(_PROBLEM) else "",
        detail if isinstance(detail, str) else "",
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _is_about_certificates(error: Exception) -> bool:
    """Returns whether a connection failed because one side does not trust the other's certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason is not None and reason.endswith(_CERTIFICATE_ALERTS)
