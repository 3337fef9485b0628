"""The options of a client, and their limits."""

from __future__ import annotations

import math
import re
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Literal

from ._errors import LONGEST_NAME, MAX_COUNT, InvalidOption, invalid_option, shown

Path = str | PathLike[str]
Order = Literal["shuffled", "as_listed"]

_MIN_TIME = 0.001
_MAX_TIMEOUT = 3600.0
_URL_FORM = "http://HOST:PORT or https://HOST:PORT"
_STORE = re.compile(r"smst_[0-9a-z]{26}")
_NAMESPACE = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(frozen=True)
class Server:
    """One server of the list."""

    url: str
    """As errors show it, without a slash at its end."""
    host: str
    port: int
    has_tls: bool
    authority: str
    """The value of the `Host` header."""
    path: str
    """The path before `/v1`; empty, or with a slash at its begin."""


@dataclass(frozen=True)
class Options:
    """Valid options of a client."""

    servers: tuple[Server, ...]
    order: Order
    token: str | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    client_certificate: tuple[str, str] | None
    store: str | None
    timeout: float
    hedge_after: float | None
    max_age: float | None
    namespace_max_age: Mapping[str, float | None]
    buffer: tuple[int, int]

    def max_age_of(self, namespace: str) -> float | None:
        return self.namespace_max_age.get(namespace, self.max_age)


def read_options(
    servers: Sequence[str],
    *,
    order: Order,
    token: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: tuple[Path, Path] | None,
    store: str | None,
    timeout: float,
    hedge_after: float | None,
    max_age: float | None,
    namespace_max_age: Mapping[str, float | None] | None,
    buffer: tuple[int, int],
) -> Options:
    """Checks options; raises `InvalidOption` for the first invalid one."""
    if isinstance(servers, str):
        raise InvalidOption("invalid servers: expected a list of URLs, not a text")
    if not servers:
        raise InvalidOption("no server: name one with `servers`, such as http://localhost:8080")
    if order not in ("shuffled", "as_listed"):
        raise invalid_option("order", order, "'shuffled' or 'as_listed'")
    if token is not None and token_file is not None:
        raise InvalidOption("invalid token: expected either `token` or `token_file`, not both")
    if token is not None and not is_token(token.strip()):
        raise InvalidOption("invalid token: expected visible ASCII characters")
    if client_certificate is not None and len(client_certificate) != 2:
        raise invalid_option("client_certificate", client_certificate, "the files of the certificate and its key")
    if store is not None and not _STORE.fullmatch(store):
        raise invalid_option("store", store, "smst_ and 26 digits, as `snowmint doctor` shows it")
    if not (_is_number(timeout) and _MIN_TIME <= timeout <= _MAX_TIMEOUT):
        raise invalid_option("timeout", timeout, "0.001 to 3600 seconds")
    if hedge_after is not None and not (_is_number(hedge_after) and 0 < hedge_after < math.inf):
        raise invalid_option("hedge_after", hedge_after, "more than 0 seconds, or None")
    ages = dict(namespace_max_age or {})
    for option, age in {"max_age": max_age, **{f"namespace_max_age of {name!r}": it for name, it in ages.items()}}.items():
        if age is not None and not (_is_number(age) and _MIN_TIME <= age < math.inf):
            raise invalid_option(option, age, "at least 0.001 seconds, or None")
    return Options(
        servers=tuple(_server(url) for url in servers),
        order=order,
        token=None if token is None else token.strip(),
        token_file=None if token_file is None else fspath(token_file),
        ca_file=None if ca_file is None else fspath(ca_file),
        client_certificate=None if client_certificate is None else _paths(client_certificate),
        store=store,
        timeout=timeout,
        hedge_after=hedge_after,
        max_age=max_age,
        namespace_max_age=ages,
        buffer=_buffer(buffer),
    )


def is_namespace(name: str) -> bool:
    """Returns whether a namespace can have a name."""
    return _NAMESPACE.fullmatch(name) is not None


def is_token(text: str) -> bool:
    """Returns whether a header can contain a token."""
    return text != "" and all("!" <= sign <= "~" for sign in text)


def ssl_context(options: Options) -> ssl.SSLContext | None:
    """Returns what TLS needs; `None` if no server and no option needs it."""
    if not (options.ca_file or options.client_certificate or any(server.has_tls for server in options.servers)):
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise InvalidOption(f"cannot use ca_file {options.ca_file}: {error}") from error
    if options.client_certificate is not None:
        certificate, key = options.client_certificate
        try:
            # Without a password here, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            raise InvalidOption(f"cannot use client_certificate {certificate} with {key}: {error}") from error
    return context


def _is_number(value: object) -> bool:
    # An `int` may be too large for the clock.
    return isinstance(value, float) or (type(value) is int and value.bit_length() <= 64)


def _paths(pair: tuple[Path, Path]) -> tuple[str, str]:
    certificate, key = pair
    return fspath(certificate), fspath(key)


def _buffer(bounds: tuple[int, int]) -> tuple[int, int]:
    expected = f"(minimum, maximum) with 0 <= minimum <= maximum <= {MAX_COUNT}"
    try:
        minimum, maximum = bounds
    except (TypeError, ValueError):
        raise invalid_option("buffer", bounds, expected) from None
    if type(minimum) is not int or type(maximum) is not int or not 0 <= minimum <= maximum <= MAX_COUNT:
        raise invalid_option("buffer", bounds, expected)
    return minimum, maximum


def _server(url: str) -> Server:
    # A text that cannot be parsed may contain a password, so no error shows it. `urlsplit` would drop some control characters.
    if not url.isascii() or any(sign <= " " or sign == "\x7f" for sign in url):
        raise InvalidOption(f"invalid server URL: expected {_URL_FORM}")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
        # Empty or long parts of a name would be an error of each request.
        (host or "").encode("idna")
    except ValueError:
        raise InvalidOption(f"invalid server URL: expected {_URL_FORM}") from None
    if "@" in parts.netloc:
        raise invalid_option("server", host or "", "no user and password: set a token with `token`")
    address, has_more, _ = url.partition("?")
    address, has_fragment, _ = address.partition("#")
    # With a slip such as `http:user:password@host`, the user is not where it belongs.
    address = "" if "@" in url else shown(address, LONGEST_NAME)
    if parts.scheme not in ("http", "https") or not host:
        raise invalid_option("server", address, _URL_FORM)
    if has_more or has_fragment:
        raise invalid_option("server", address, "no query")
    has_tls = parts.scheme == "https"
    return Server(
        url=url.rstrip("/"),
        host=host,
        port=port if port is not None else 443 if has_tls else 80,
        has_tls=has_tls,
        authority=parts.netloc,
        path=parts.path.rstrip("/"),
    )
