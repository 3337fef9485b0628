"""Stores orders in PostgreSQL through SQLAlchemy, with ids from Snowmint.

It creates the tables `orders` and `lines`, and drops those that exist. It fills them in threads, checks the ids and exits.
SNOWMINT_SERVERS has the URLs of the servers, separated by commas; DATABASE_URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine, ForeignKey, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from snowmint import Client
from snowmint.sqlalchemy import id_column

THREADS = 8
EACH = 250
"""Orders of each thread, with one line each."""

client = Client(os.environ["SNOWMINT_SERVERS"].split(","))
ids = client.namespace("default")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = id_column(ids)
    item: Mapped[str]
    lines: Mapped[list[Line]] = relationship(back_populates="order")


class Line(Base):
    __tablename__ = "lines"

    id: Mapped[int] = id_column(ids)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    amount: Mapped[int]
    order: Mapped[Order] = relationship(back_populates="lines")


def fill(engine: Engine) -> None:
    """Creates orders, 10 in each transaction."""
    for begin in range(0, EACH, 10):
        with Session(engine) as session, session.begin():
            session.add_all(Order(item="book", lines=[Line(amount=n)]) for n in range(begin, begin + 10))


def check(engine: Engine) -> tuple[int, int]:
    """Compares the number of rows with that of distinct ids, over both tables."""
    query = """WITH ids AS (SELECT id FROM orders UNION ALL SELECT id FROM lines)
        SELECT count(*), count(DISTINCT id),
            (SELECT count(*) FROM orders JOIN lines ON lines.order_id = orders.id WHERE orders.id > 0) FROM ids"""
    with engine.connect() as connection:
        rows, distinct, orders = connection.execute(text(query)).one()
    if (rows, distinct, orders) != (2 * THREADS * EACH, 2 * THREADS * EACH, THREADS * EACH):
        sys.exit(f"{rows} rows, {distinct} distinct ids, {orders} orders with a line: expected {2 * THREADS * EACH} rows")
    return rows, distinct


def main() -> None:
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"), pool_size=THREADS)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with client:
        with ThreadPoolExecutor(THREADS) as pool:
            for filled in [pool.submit(fill, engine) for _ in range(THREADS)]:
                filled.result()
        rows, distinct = check(engine)
    print(json.dumps({"rows": rows, "distinct": distinct}, separators=(",", ":")))


if __name__ == "__main__":
    main()
