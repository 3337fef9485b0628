"""Ids in Pydantic models."""

import pytest
from pydantic import BaseModel, ValidationError

from snowmint.pydantic import IdText

LARGEST = 2**63 - 1


class Order(BaseModel):
    id: IdText


def test_an_id_is_a_number_in_python_and_a_text_in_json() -> None:
    order = Order(id=LARGEST)
    assert order.model_dump() == {"id": LARGEST}
    assert order.model_dump_json() == f'{{"id":"{LARGEST}"}}'
    assert Order.model_validate_json(order.model_dump_json()) == order
    assert Order.model_validate_json(f'{{"id":{LARGEST}}}') == order
    assert Order.model_json_schema(mode="serialization")["properties"]["id"]["type"] == "string"


@pytest.mark.parametrize("value", [-1, 2**63, "x", "", None, 1.5])
def test_what_is_no_id(value: object) -> None:
    with pytest.raises(ValidationError):
        Order.model_validate({"id": value})
