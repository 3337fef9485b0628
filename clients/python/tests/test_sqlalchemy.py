"""Ids of rows that SQLAlchemy inserts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import BigInteger, create_engine, insert, select
from sqlalchemy.exc import InvalidRequestError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from sqlalchemy.util import greenlet_spawn

import snowmint
from servers import Server
from snowmint.sqlalchemy import id_column
from test_client import UNLIMITED


def new_order(ids: snowmint.Namespace | snowmint.AsyncNamespace) -> Any:
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"

        id: Mapped[int] = id_column(ids)
        number: Mapped[int] = id_column(ids, primary_key=False, unique=True)
        item: Mapped[str] = mapped_column()

    return Order


def test_each_row_gets_an_id(server: Server) -> None:
    with snowmint.Client([server.url], **UNLIMITED) as client:
        order = new_order(client.namespace("orders"))
        engine = create_engine("sqlite://")
        order.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add_all(order(item="book") for _ in range(50))
            session.add(order(id=7_000_000, item="set by hand"))
            session.execute(insert(order), [{"item": "core"} for _ in range(50)])
        with Session(engine) as session:
            rows = session.execute(select(order.id, order.number)).all()
        everything = [drawn for row in rows for drawn in row]
        assert len(set(everything)) == len(everything) == 202
        assert 7_000_000 in everything
        column = order.__table__.c.id
        assert (type(column.type), column.primary_key, column.autoincrement) == (BigInteger, True, False)
        assert not order.__table__.c.number.primary_key
        engine.dispose()


def test_an_error_ends_the_statement() -> None:
    with snowmint.Client(["http://127.0.0.1:1"], timeout=0.01) as client:
        order = new_order(client.namespace("orders"))
        engine = create_engine("sqlite://")
        order.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(order(item="book"))
            with pytest.raises(StatementError) as raised:
                session.flush()
            assert isinstance(raised.value.orig, snowmint.Unavailable)
        engine.dispose()


def test_no_two_rows_share_an_id(server: Server) -> None:
    """SQLAlchemy calls the default of a column once for `INSERT … FROM SELECT`."""
    with snowmint.Client([server.url], **UNLIMITED) as client:
        order = new_order(client.namespace("orders"))
        engine = create_engine("sqlite://")
        order.metadata.create_all(engine)
        with Session(engine) as session:
            session.execute(insert(order).values([{"item": "one"}, {"item": "two"}]))
            copy = select(order.id + 1_000_000, order.item)
            with pytest.raises(StatementError, match="one id for all rows") as raised:
                session.execute(insert(order).from_select(["id", "item"], copy))
            assert isinstance(raised.value.orig, InvalidRequestError)
            copy = select(order.id + 1_000_000, order.number + 1_000_000, order.item)
            session.execute(insert(order).from_select(["id", "number", "item"], copy))
            drawn = [it for row in session.execute(select(order.id, order.number)) for it in row]
            assert len(set(drawn)) == len(drawn) == 8
        engine.dispose()


def test_a_dataclass(server: Server) -> None:
    class Base(MappedAsDataclass, DeclarativeBase):
        pass

    with snowmint.Client([server.url], **UNLIMITED) as client:

        class Order(Base):
            __tablename__ = "orders"

            id: Mapped[int] = id_column(client.namespace("orders"), init=False)
            item: Mapped[str] = mapped_column(default="book")

        engine = create_engine("sqlite://")
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(order := Order())
            session.flush()
            assert order.id == 1
        engine.dispose()


def test_ids_of_asyncio(server: Server) -> None:
    async def run() -> list[int]:
        async with snowmint.AsyncClient([server.url], **UNLIMITED) as client:
            order = new_order(client.namespace("orders"))

            def insert_rows() -> list[int]:
                engine = create_engine("sqlite://")
                order.metadata.create_all(engine)
                with Session(engine) as session, session.begin():
                    orders = [order(item="book") for _ in range(50)]
                    session.add_all(orders)
                    session.flush()
                    drawn = [it.id for it in orders]
                engine.dispose()
                return drawn

            # As `AsyncSession` does.
            return await greenlet_spawn(insert_rows)

    drawn = asyncio.run(run())
    assert len(set(drawn)) == 50
