"""An HTTP service that stores orders in PostgreSQL, with ids from Snowmint.

gunicorn loads it once, before it forks its workers. Each worker starts with an empty memory and connections of its own, although
the process that loaded the service has ids in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped

from snowmint import AsyncClient
from snowmint.pydantic import IdText
from snowmint.sqlalchemy import id_column

client = AsyncClient(os.environ["SNOWMINT_SERVERS"].split(","))
ids = client.namespace("default")
engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
sessions = async_sessionmaker(engine)

# A service that cannot get ids does not start.
asyncio.run(ids.next())


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = id_column(ids)
    item: Mapped[str]


class NewOrder(BaseModel):
    item: str


class StoredOrder(BaseModel):
    id: IdText
    item: str
    worker: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await client.close()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as begun:
        yield begun


@app.post("/orders")
async def create(new: NewOrder, db: Annotated[AsyncSession, Depends(session)]) -> StoredOrder:
    order = Order(item=new.item)
    db.add(order)
    await db.flush()
    return StoredOrder(id=order.id, item=order.item, worker=os.getpid())
