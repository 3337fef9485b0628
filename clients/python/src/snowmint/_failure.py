"""Failed requests, and what they mean for callers and for later requests."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ._errors import (
    AnotherStore,
    Error,
    Forbidden,
    InvalidCertificate,
    OverQuota,
    Rejected,
    Unauthorized,
    Unavailable,
    UnknownNamespace,
)


class Retry(enum.Enum):
    """Whether and where to retry a failed request."""

    NEVER = enum.auto()
    """Every server would answer the same."""
    ELSEWHERE = enum.auto()
    """At another server, or later at the same one."""
    AFTER_REPAIR = enum.auto()
    """Like `ELSEWHERE`, but the same error returns until somebody replaces a certificate, or corrects a store."""
    FEWER = enum.auto()
    """With fewer ids."""


class Scope(enum.Enum):
    """Which requests a failure affects: those for every namespace, or for one."""

    SERVER = enum.auto()
    NAMESPACE = enum.auto()


@dataclass(frozen=True)
class Failure:
    """One failed request."""

    server: str
    kind: type[Error]
    """What the caller gets if no later request succeeds."""
    detail: str
    retry: Retry
    status: int | None = None
    after: float | None = None
    """The server's `Retry-After` in seconds, at most 60."""
    scope: Scope = Scope.SERVER

    def error(self, namespace: str) -> Error:
        """Returns the failure as the error of a call."""
        detail = f"{self.server}: {self.detail}"
        return self.kind(detail, namespace, self.server, self.status, self.after)


class Failed(Exception):
    """Raised inside the client by a request that failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def unavailable(server: str, detail: str) -> Failure:
    return Failure(server, Unavailable, detail, Retry.ELSEWHERE)


def untrusted(server: str, detail: str) -> Failure:
    return Failure(server, InvalidCertificate, detail, Retry.AFTER_REPAIR)


def of_another_store(server: str, detail: str) -> Failure:
    return Failure(server, AnotherStore, detail, Retry.AFTER_REPAIR, status=200)


def without_token(server: str, detail: str) -> Failure:
    return Failure(server, Unauthorized, detail, Retry.NEVER)


def timed_out(namespace: str, timeout: float, last: Failure | None) -> Error:
    """Returns the error of a call that got no ids in time. `last` is what failed last since the last answer."""
    within = f"no ids of namespace '{namespace}' within {timeout:g} s"
    if last is None:
        return Unavailable(f"{within}: no server has answered", namespace)
    detail = f"{within}: {last.server}: {last.detail}"
    return last.kind(detail, namespace, last.server, last.status, last.after)


_BY_PROBLEM: dict[str, tuple[type[Error], Retry]] = {
    "busy": (Unavailable, Retry.FEWER),
    "layout-ended": (Rejected, Retry.NEVER),
    "numbers-ended": (Rejected, Retry.NEVER),
    "too-many-namespaces": (Rejected, Retry.NEVER),
    "cross-site": (Rejected, Retry.NEVER),
}

_BY_STATUS_AND_PROBLEM: dict[tuple[int, str], tuple[type[Error], Retry]] = {
    # The count exceeds the token's quota.
    (400, "bad-count"): (Rejected, Retry.FEWER),
    (404, "unknown-namespace"): (UnknownNamespace, Retry.NEVER),
}

_BY_STATUS: dict[int, tuple[type[Error], Retry]] = {
    401: (Unauthorized, Retry.NEVER),
    403: (Forbidden, Retry.NEVER),
    408: (Unavailable, Retry.ELSEWHERE),
    429: (OverQuota, Retry.ELSEWHERE),
}


def meaning(status: int, problem: str) -> tuple[type[Error], Retry, Scope]:
    """Returns what an error answer means. `problem` is the last part of Snowmint's problem type; empty without one."""
    # An unknown problem of a later server counts for the namespace: if it concerns the server, each namespace finds out with
    # its own request. The opposite mistake would stop namespaces that work.
    of_namespace = status >= 500 and problem not in ("", "too-many-clients")
    scope = Scope.NAMESPACE if of_namespace else Scope.SERVER
    found = _BY_PROBLEM.get(problem) or _BY_STATUS_AND_PROBLEM.get((status, problem)) or _BY_STATUS.get(status)
    if found is None:
        found = (Unavailable, Retry.ELSEWHERE) if 500 <= status <= 599 else (Rejected, Retry.NEVER)
    return *found, scope
