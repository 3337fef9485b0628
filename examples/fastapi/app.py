"""Orders with ids from `snowmint serve`, drawn by the stock Redis client. See README.md."""

import os
from contextlib import asynccontextmanager

import redis.asyncio as redis
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError

# A retry after a lost answer only costs an unused id.
mint = redis.from_url(
    os.environ.get("SNOWMINT_URL", "redis://localhost:6380"),
    decode_responses=True,
    socket_timeout=2,
    retry=Retry(ExponentialBackoff(), 3),
)
orders = {}  # stands for a database, with a BIGINT column for the id


class Ids:
    """Returns ids from memory, fetched 100 at a time: for imports and busy services."""

    def __init__(self, namespace, batch=100):
        self.namespace, self.batch, self.ids = namespace, batch, []

    async def next(self):
        while not self.ids:
            # Several tasks may wait here; each answer is added once.
            fetched = await mint.execute_command("ID.NEXT", self.namespace, "COUNT", self.batch)
            self.ids += map(int, reversed(fetched))
        return self.ids.pop()


lines = Ids("default")


@asynccontextmanager
async def lifespan(_):
    yield
    await mint.aclose()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(RedisError)
async def no_ids(_: Request, error: RedisError):
    return JSONResponse({"detail": f"no ids now: {error}"}, status_code=503, headers={"Retry-After": "1"})


@app.post("/orders", status_code=201)
async def create(articles: list[str]):
    id = int(await mint.execute_command("ID.NEXT", "default"))
    orders[id] = [{"line": str(await lines.next()), "article": it} for it in articles]
    # Text: JavaScript keeps 53 bits of a number.
    return {"id": str(id), "lines": orders[id]}


@app.get("/orders/{id}")
async def find(id: int):
    if id not in orders:
        raise HTTPException(404, f"no order {id}")
    reply = await mint.execute_command("ID.INSPECT", str(id))
    # A dictionary with RESP3, a flat list with RESP2.
    parts = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))
    return {"id": str(id), "lines": orders[id], "made_at": parts["utc"]}
