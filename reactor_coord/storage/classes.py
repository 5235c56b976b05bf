"""Values of the project's own classes: enums, dataclasses, pydantic models, named tuples, model instances.

A class is named by its module and its name in it. It is imported when a value is read, and used only if it still is that
kind of class, so that a row can never make the process call something else. Its constructor is not run again: the
value is put together from its fields as they were, fields it has gained since take their defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag
from importlib import import_module
from typing import Any

from django.apps import apps
from django.db import connections, models
from pydantic import BaseModel

from reactor_coord.storage.scalars import Unwritable

Nested = Callable[[Any, str], Any]
"""Writes or reads a part of the value, which stands at this place in it (`.name` or `[0]`)."""


@dataclass(frozen=True, slots=True)
class ClassKind:
    """How one kind of class is recognised and its values written, read back and shown."""

    tag: str
    is_class: Callable[[type], bool]
    write: Callable[[Any, Nested], dict[str, Any]]
    read: Callable[[type, Mapping[str, Any], Nested], Any]
    show: Callable[[Mapping[str, Any]], Any] = lambda data: data["v"]


def name_of(kind: type) -> str:
    """The class as `module:Name`. Raises `Unwritable` for one that could not be found by it again."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _find(name) is not kind:
        raise Unwritable("its class cannot be imported by name; define it at the top of a module")
    return name


def class_named(name: str, is_class: Callable[[type], bool]) -> type | None:
    """The class of that name, if there is one and it is of the kind expected."""
    found = _find(name)
    return found if isinstance(found, type) and is_class(found) else None


def _find(name: str) -> object:
    module, _, path = name.partition(":")
    try:
        found: object = import_module(module)
    except ImportError:
        return None
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _write_enum(value: Enum, nested: Nested) -> dict[str, Any]:
    if isinstance(value, Flag) or type(value.value) in (str, int):
        return {"v": nested(value.value, ".value")}
    return {"name": value.name, "v": str(value.name)}


def _read_enum(kind: type, data: Mapping[str, Any], nested: Nested) -> Any:
    members: Any = kind
    return members[data["name"]] if "name" in data else members(nested(data["v"], ".value"))


def _write_dataclass(value: Any, nested: Nested) -> dict[str, Any]:
    names = [each.name for each in dataclasses.fields(value)]
    return {"v": {name: nested(getattr(value, name), f".{name}") for name in names if hasattr(value, name)}}


def _read_dataclass(kind: type, data: Mapping[str, Any], nested: Nested) -> Any:
    value: Any = object.__new__(kind)
    for each in dataclasses.fields(kind):
        if each.name in data["v"]:
            object.__setattr__(value, each.name, nested(data["v"][each.name], f".{each.name}"))
        elif each.default is not dataclasses.MISSING:
            object.__setattr__(value, each.name, each.default)
        elif each.default_factory is not dataclasses.MISSING:
            object.__setattr__(value, each.name, each.default_factory())
        else:
            raise Unwritable(f"its class has a new field {each.name!r} without a default")
    return value


def _write_pydantic(value: BaseModel, nested: Nested) -> dict[str, Any]:
    values = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    fields = {name: nested(each, f".{name}") for name, each in values.items() if name in _pydantic_names(value)}
    return {"v": fields, "set": sorted(value.model_fields_set)}


def _pydantic_names(value: BaseModel) -> set[str]:
    # Cached properties live in __dict__ too and are not part of the value.
    return {*type(value).model_fields, *(value.__pydantic_extra__ or {})}


def _read_pydantic(kind: type[BaseModel], data: Mapping[str, Any], nested: Nested) -> BaseModel:
    values = {name: nested(each, f".{name}") for name, each in data["v"].items()}
    missing = [name for name, each in kind.model_fields.items() if each.is_required() and name not in values]
    if missing:
        raise Unwritable(f"its class has a new field {missing[0]!r} without a default")
    # Not by alias: the values are stored by field name, and an alias may be another field's name.
    made = kind.model_construct(_fields_set=set(data["set"]))
    for name, each in values.items():
        if name in kind.model_fields:
            made.__dict__[name] = each
        elif made.__pydantic_extra__ is not None:
            made.__pydantic_extra__[name] = each
    return made


def _write_named_tuple(value: Any, nested: Nested) -> dict[str, Any]:
    return {"v": {name: nested(getattr(value, name), f".{name}") for name in value._fields}}


def _read_named_tuple(kind: Any, data: Mapping[str, Any], nested: Nested) -> Any:
    values = {name: nested(each, f".{name}") for name, each in data["v"].items() if name in kind._fields}
    missing = set(kind._fields) - values.keys() - kind._field_defaults.keys()
    if missing:
        raise Unwritable(f"its class has a new field {min(missing)!r} without a default")
    return kind(**values)


CLASS_KINDS = (
    ClassKind("enum", lambda kind: issubclass(kind, Enum), _write_enum, _read_enum),
    ClassKind("pydantic", lambda kind: issubclass(kind, BaseModel), _write_pydantic, _read_pydantic),
    ClassKind("dataclass", dataclasses.is_dataclass, _write_dataclass, _read_dataclass),
    ClassKind(
        "namedtuple",
        lambda kind: issubclass(kind, tuple) and hasattr(kind, "_fields"),
        _write_named_tuple,
        _read_named_tuple,
    ),
)
CLASS_KINDS_BY_TAG = {each.tag: each for each in CLASS_KINDS}


def write_instance(value: models.Model, nested: Nested) -> dict[str, Any]:
    """A reference to a saved row: its model, key and database. Its fields are not written."""
    if value.pk is None or value._state.adding:
        raise Unwritable("it is not saved; save it first, or pass its fields")
    return {"type": value._meta.label_lower, "v": nested(value.pk, ".pk"), "db": value._state.db}


def read_instance(data: Mapping[str, Any], nested: Nested) -> models.Model:
    """The row as it is now. One query."""
    try:
        model = apps.get_model(data["type"])
    except LookupError as error:
        raise Unwritable(f"there is no model {data['type']!r} any more") from error
    using = data["db"] if data["db"] in connections else None
    key = nested(data["v"], ".pk")
    found: models.Model | None = model._base_manager.using(using).filter(pk=key).first()
    if found is None:
        raise Unwritable(f"{data['type']} {key} does not exist any more")
    return found
