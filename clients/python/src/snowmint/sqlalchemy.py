"""Ids of rows that SQLAlchemy inserts. Needs `snowmint[sqlalchemy]`.

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = id_column(client.namespace("orders"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import MappedColumn, mapped_column
from sqlalchemy.util import await_only

from ._aio import AsyncNamespace
from ._client import Namespace


def id_column(ids: Namespace | AsyncNamespace, *, primary_key: bool = True, **options: Any) -> MappedColumn[int]:
    """Returns a `BIGINT` column that takes an id from a namespace for each row without one.

    The rows of one `INSERT` get theirs one by one, from memory. An error of Snowmint ends the statement before the database sees
    it; SQLAlchemy raises it as the `orig` of a `StatementError`. The ids of an `AsyncNamespace` are for `AsyncSession` and
    `AsyncConnection` only. Other options are those of `mapped_column`; a dataclass needs `init=False`.

    `INSERT … FROM SELECT` is an error unless it sets the column: SQLAlchemy would give all of its rows the same id.
    """
    return mapped_column(BigInteger, primary_key=primary_key, autoincrement=False, insert_default=_default(ids), **options)


def _default(ids: Namespace | AsyncNamespace) -> Callable[[Any], int]:
    def draw(context: Any) -> int:
        if getattr(context.compiled.statement, "select", None) is not None:
            raise InvalidRequestError(
                "INSERT … FROM SELECT without ids: SQLAlchemy would use one id for all rows; select an id for each row, "
                "or insert the rows with values"
            )
        # SQLAlchemy calls defaults without `await`, in a greenlet that can wait for a coroutine.
        return ids.next() if isinstance(ids, Namespace) else await_only(ids.next())

    return draw
