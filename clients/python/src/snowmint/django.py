"""Ids of Django models. Needs `snowmint[django]`.

The setting `SNOWMINT` has the options of the client, and the namespace of fields that name none:

    SNOWMINT = {"servers": ["http://localhost:8080"], "namespace": "default"}
"""

from __future__ import annotations

import functools
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils.deconstruct import deconstructible

from ._client import Client, Namespace


def _settings() -> dict[str, Any]:
    found = getattr(settings, "SNOWMINT", None)
    if not isinstance(found, dict):
        raise ImproperlyConfigured("no setting SNOWMINT: expected a dict such as {'servers': ['http://localhost:8080']}")
    return found


_clients: dict[None, Client] = {}


def client() -> Client:
    """Returns the client of this process. It is created with the first call, and starts empty in a forked child."""
    found = _clients.get(None)
    if found is None:
        created = Client(**{name: value for name, value in _settings().items() if name != "namespace"})
        # Two threads may come here at the same time, and get the same one. A lock would not survive a fork.
        found = _clients.setdefault(None, created)
    return found


@functools.cache
def _namespace(name: str | None) -> Namespace:
    name = name or _settings().get("namespace")
    if not name:
        raise ImproperlyConfigured("no namespace: name one in the field, or in the setting SNOWMINT['namespace']")
    return client().namespace(name)


def next_id(namespace: str | None = None) -> int:
    """Returns the next id of a namespace; `None` is the one of the setting."""
    return _namespace(namespace).next()


@deconstructible
class NextId:
    """The default of a `SnowmintField`; migrations can contain it."""

    def __init__(self, namespace: str | None = None) -> None:
        self.namespace = namespace

    def __call__(self) -> int:
        return next_id(self.namespace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NextId) and other.namespace == self.namespace

    def __hash__(self) -> int:
        return hash(self.namespace)


class SnowmintField(models.BigIntegerField):  # type: ignore[misc]
    """A `BIGINT` whose default is the next id of a namespace.

        id = SnowmintField(primary_key=True)
        number = SnowmintField(namespace="invoices", unique=True)

    An object has its id before it is saved, and `bulk_create` needs no answer of the database. Ids that are set stay. Forms do
    not show the field unless `editable` is set.

    A migration that adds the field to a table with rows gives all of them the same id, as with each default in Django. Follow its
    guide to migrations that add unique fields.
    """

    description = "Id from Snowmint"

    def __init__(self, *args: Any, namespace: str | None = None, **kwargs: Any) -> None:
        self.namespace = namespace
        super().__init__(*args, **{"default": NextId(namespace), "editable": False, **kwargs})

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if self.default == NextId(self.namespace):
            del kwargs["default"]
        kwargs.pop("editable", None)
        if self.editable:
            kwargs["editable"] = True
        if self.namespace is not None:
            kwargs["namespace"] = self.namespace
        return name, path, args, kwargs
