"""A client of the Snowmint id service: unique 64-bit ids, most of them from memory in less than a microsecond.

A `Client` (for threads) or an `AsyncClient` (for asyncio) draws ranges of ids from one or more servers over HTTP, and hands each
id to one caller. It requests more before the ids in memory are used up. If a server fails, the next one gets the request, and
callers see no error.

No id is returned twice. An answer is used once and as a whole, and no request is repeated. A forked child starts empty. Other
copies of a process are the exception: call `discard_buffered` before a snapshot that may start twice.
"""

from ._aio import AsyncClient, AsyncNamespace, AsyncTexts
from ._client import Client, Namespace, Texts
from ._core import Stats
from ._errors import (
    AnotherStore,
    Closed,
    Error,
    Forbidden,
    InvalidCertificate,
    InvalidCount,
    InvalidNamespace,
    InvalidOption,
    OverQuota,
    Rejected,
    Unauthorized,
    Unavailable,
    UnknownNamespace,
)
from ._version import __version__

__all__ = [
    "AnotherStore",
    "AsyncClient",
    "AsyncNamespace",
    "AsyncTexts",
    "Client",
    "Closed",
    "Error",
    "Forbidden",
    "InvalidCertificate",
    "InvalidCount",
    "InvalidNamespace",
    "InvalidOption",
    "Namespace",
    "OverQuota",
    "Rejected",
    "Stats",
    "Texts",
    "Unauthorized",
    "Unavailable",
    "UnknownNamespace",
    "__version__",
]

# Tracebacks and pickles show the public names.
for _name in __all__:
    if isinstance(_public := globals()[_name], type):
        _public.__module__ = __name__
del _name, _public
