"""The token of requests."""

from __future__ import annotations

import asyncio

from ._failure import Failed, without_token
from ._options import is_token
from ._threads import in_thread

LONGEST_TOKEN_FILE = 64 * 1024


class Token:
    """A token that authorizes a client: fixed, or in a file that is read for each request."""

    def __init__(self, fixed: str | None, file: str | None) -> None:
        self._fixed = fixed
        self._file = file
        # If the file system hangs, one thread waits for it, not one for each request.
        self._reading: asyncio.Future[str] | None = None

    async def read(self, server: str) -> str | None:
        """Returns the token; `None` if there is none."""
        file = self._file
        if file is None:
            return self._fixed
        while self._reading is not None:
            await asyncio.wait({self._reading})
        reading = self._reading = in_thread(lambda: _content(file))
        reading.add_done_callback(self._has_read)
        # Not the future itself, which the end of this task would cancel while the thread still reads.
        await asyncio.wait({reading})
        try:
            token = reading.result().strip()
        except (OSError, ValueError) as error:
            raise Failed(without_token(server, f"token file {file}: {error}")) from None
        if not is_token(token):
            raise Failed(without_token(server, f"token file {file}: expected one token of visible ASCII characters"))
        return token

    def _has_read(self, reading: asyncio.Future[str]) -> None:
        self._reading = None
        # It may have failed after the request ended.
        if not reading.cancelled():
            reading.exception()


def _content(file: str) -> str:
    with open(file, encoding="ascii") as opened:
        content = opened.read(LONGEST_TOKEN_FILE + 1)
    if len(content) > LONGEST_TOKEN_FILE:
        raise ValueError(f"expected at most {LONGEST_TOKEN_FILE} bytes")
    return content
