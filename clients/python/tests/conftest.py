"""What all tests share."""

from collections.abc import Iterator

import pytest

from servers import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running
