"""Ids in Pydantic models, and so in FastAPI. Needs `snowmint[pydantic]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainSerializer, WithJsonSchema

from ._answer import MAX_ID

IdText = Annotated[
    int,
    Field(ge=0, le=MAX_ID),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,19}$"}),
]
"""An `int` in Python that is a text in JSON: a number in JavaScript is exact only up to 2^53. It reads texts and numbers."""
