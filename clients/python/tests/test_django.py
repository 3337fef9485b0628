"""Ids of Django models."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, models
from django.db.migrations.writer import MigrationWriter

import snowmint.django
from servers import Server
from snowmint.django import NextId, SnowmintField

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()


class Base(models.Model):  # type: ignore[misc]
    id = SnowmintField(primary_key=True)

    class Meta:
        abstract = True
        app_label = "shop"


class Order(Base):
    number = SnowmintField(namespace="numbers", unique=True)
    item = models.TextField()


class Line(Base):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)


@pytest.fixture
def configured(server: Server) -> Iterator[Server]:
    settings.SNOWMINT = {"servers": [server.url], "namespace": "orders", "max_age": None}
    snowmint.django._clients.clear()
    snowmint.django._namespace.cache_clear()
    yield server
    snowmint.django.client().close()
    del settings.SNOWMINT


@pytest.mark.usefixtures("configured")
def test_each_row_gets_an_id_before_it_is_stored() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
        editor.create_model(Line)
    orders = [Order(item="book") for _ in range(100)]
    lines = [Line(order=order) for order in orders]
    Order.objects.bulk_create(orders)
    Line.objects.bulk_create(lines)
    assert Order.objects.create(id=7_000_000, item="set by hand").pk == 7_000_000
    with connection.execute_wrapper(count := Statements()):
        created = Order.objects.create(item="book")
    assert count.statements == ["INSERT"], "no UPDATE first"
    everything = [created.pk, *(it.pk for it in orders + lines), *Order.objects.values_list("number", flat=True)]
    assert len(set(everything)) == len(everything) == 1 + 200 + 102
    assert Line.objects.filter(order__item="book").count() == 100
    assert [field.db_type(connection) for field in (Order._meta.pk, Line._meta.get_field("order"))] == ["bigint", "bigint"]
    connection.close()


class Statements:
    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, execute: Any, sql: str, *args: Any) -> Any:
        self.statements.append(sql.split(maxsplit=1)[0])
        return execute(sql, *args)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (SnowmintField(primary_key=True), {"primary_key": True}),
        (SnowmintField(namespace="numbers", unique=True), {"namespace": "numbers", "unique": True}),
        (SnowmintField(editable=True), {"editable": True}),
        (SnowmintField(default=5), {"default": 5}),
        (SnowmintField(namespace="a", default=NextId("b")), {"namespace": "a", "default": NextId("b")}),
        (Order._meta.pk, {"primary_key": True, "serialize": False}),
    ],
)
def test_migrations_contain_the_field(field: Any, expected: dict[str, Any]) -> None:
    _, path, _, kwargs = field.deconstruct()
    kwargs.pop("serialize", None)
    expected.pop("serialize", None)
    assert (path, kwargs) == ("snowmint.django.SnowmintField", expected)
    assert field.clone().default == field.default
    text, imports = MigrationWriter.serialize(field)
    assert text.startswith("snowmint.django.SnowmintField(")
    assert "import snowmint.django" in imports


@pytest.mark.usefixtures("configured")
def test_threads_get_the_same_client(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def create(**options: Any) -> snowmint.Client:
        both.wait(30)
        return snowmint.Client(**options)

    monkeypatch.setattr(snowmint.django, "Client", create)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: snowmint.django.client(), range(2))
    assert first is second


def test_what_is_not_configured() -> None:
    snowmint.django._clients.clear()
    snowmint.django._namespace.cache_clear()
    with pytest.raises(ImproperlyConfigured, match="no setting SNOWMINT"):
        Order(item="book")
    settings.SNOWMINT = {"servers": ["http://127.0.0.1:1"]}
    with pytest.raises(ImproperlyConfigured, match="no namespace"):
        Order(item="book")
    del settings.SNOWMINT
