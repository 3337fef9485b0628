"""The errors of calls, one class for each kind."""

from __future__ import annotations

from typing import Any, ClassVar

MAX_COUNT = 1_000_000
"""Maximum number of ids in one call, and in one request."""

# Limits in characters for text of others in an error.
LONGEST_NAME = 200
LONGEST_MESSAGE = 4000


class Error(Exception):
    """A call that returned no ids, or a client that cannot be created. Its text never contains a token or a password.

    The class is the kind of error, and says what to do about it. `temporary` says whether the same call may succeed later.
    """

    temporary: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    detail: str
    """What happened."""
    namespace: str | None
    """The name of the namespace; `None` for an error of the client itself."""
    server: str | None
    """The URL of the server that rejected the request, or that failed last; `None` if unknown."""
    status: int | None
    """The HTTP status of the server's answer; `None` if there was none."""
    retry_after: float | None
    """How long to wait before a retry, at most 60 s; `None` if no server said so."""

    def __init__(
        self,
        detail: str,
        namespace: str | None = None,
        server: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{detail}; {self.advice}" if self.advice else detail)
        self.detail = detail
        self.namespace = namespace
        self.server = server
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        # Process pools and task queues send exceptions through pickle.
        return type(self), (self.detail, self.namespace, self.server, self.status, self.retry_after)


class Unavailable(Error):
    """No server returned ids within the timeout. Retry later; check that a server runs and can be reached."""

    temporary = True
    advice = "check that a server runs and can be reached"


class OverQuota(Error):
    """The token has used up its quota of ids. Retry after `retry_after`, or raise the quota."""

    temporary = True
    advice = "retry later, or raise the quota of the token"


class Unauthorized(Error):
    """The server requires a token, or rejected the given one (401). Do not retry."""

    advice = "set a valid token with `token` or `token_file`"


class Forbidden(Error):
    """The token does not allow this namespace (403). Do not retry."""

    advice = "use a token with the right `mint` for this namespace"


class UnknownNamespace(Error):
    """The server does not have this namespace (404). Its text says how to create it. Do not retry."""


class InvalidCertificate(Error):
    """The client trusts no server's certificate, or the servers rejected the client's. Do not retry."""

    advice = "check the certificates of the servers, and `ca_file` and `client_certificate`"


class AnotherStore(Error):
    """The ids of the server are of another store than those before, or than `store`.

    Together they may have duplicates, so they were dropped. Correct the servers. Do not retry.
    """

    advice = "its ids were dropped: correct the list of servers, or the store of that server"


class Rejected(Error):
    """The server rejected the request for another reason, for instance because its ids have a text form. Do not retry."""

    advice = "do not retry"


class InvalidNamespace(Error, ValueError):
    """The name of the namespace is invalid."""


class InvalidCount(Error, ValueError):
    """The count is not 1 to 1,000,000."""


class InvalidOption(Error, ValueError):
    """A client cannot use an option."""


class Closed(Error):
    """The client was closed."""

    advice = "create a new client"


def invalid_option(option: str, value: object, expected: str) -> InvalidOption:
    return InvalidOption(f"invalid {option} {value!r}: expected {expected}")


def invalid_namespace(name: str) -> InvalidNamespace:
    text = shown(name, LONGEST_NAME)
    return InvalidNamespace(f"invalid namespace name '{text}': expected 1 to 64 letters, digits, '.', '_', '-' or ':'", name)


def invalid_count(namespace: str, count: object) -> InvalidCount:
    return InvalidCount(f"invalid count {count!r}: expected 1 to {MAX_COUNT}", namespace)


def closed(namespace: str) -> Closed:
    return Closed("the client is closed", namespace)


def shown(text: str, most: int) -> str:
    """Returns a text of others as an error may show it: short, and without characters that control a terminal."""
    short = "".join(sign if sign.isprintable() else f"\\u{{{ord(sign):x}}}" for sign in text[:most])
    return short if len(text) <= most else f"{short}… ({len(text)} characters)"
