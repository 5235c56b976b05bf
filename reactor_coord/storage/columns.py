"""What every write does to its values first: derive the columns that follow from others, and make text storable.

Texts of exceptions and keys come from anywhere. A NUL or a lone surrogate in one must not cost an execution its
checkpoint, so they are written as visible escapes here (the codec, which must give back what it got, tags them instead).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.db import models

from reactor_coord.engine.records import Wait
from reactor_coord.models import Execution

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STRICT = json.JSONEncoder(allow_nan=False)
_EMPTY_TYPES = frozenset({type(None), bool, int, str, dict, list})
_UNSTORABLE_JSON = re.compile(r"\\u(?:0000|d[89a-f][0-9a-f]{2})")


def clean_text(text: str) -> str:
    """The text with NULs and lone surrogates spelt out."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean_json(value: Any) -> Any:
    """The value if any database can store it as JSON, else a copy with what none can spelt out as text."""
    if _is_empty(value):
        return value
    try:
        written = _STRICT.encode(value)
    except (TypeError, ValueError):
        return _cleaned(value)
    return _cleaned(value) if _UNSTORABLE_JSON.search(written) else value


def _is_empty(value: Any) -> bool:
    """Most columns of most rows: nothing in it that would need a look."""
    return not value and type(value) in _EMPTY_TYPES


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cleaned(each) for each in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    return clean_text(str(value))


def storable(field: models.Field[Any, Any], value: Any) -> Any:
    """The value as this column can take it: cleaned, and cut to the column's length."""
    if isinstance(field, models.JSONField):
        return clean_json(value)
    if isinstance(value, str):
        text = clean_text(str(value))
        return text[: field.max_length] if field.max_length else text
    return value


def row_values(row: models.Model, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The columns of a row by attribute name, each storable."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    for name, field in _fields_to_clean(type(row)):
        if not _is_empty(values[name]):
            values[name] = storable(field, values[name])
    for name in without:
        values.pop(name, None)
    return values


@cache
def _fields_to_clean(model: type[models.Model]) -> tuple[tuple[str, models.Field[Any, Any]], ...]:
    kinds = (models.JSONField, models.CharField, models.TextField)
    return tuple((field.attname, field) for field in model._meta.concrete_fields if isinstance(field, kinds))


@cache
def execution_field(name: str) -> models.Field[Any, Any]:
    """A column of an execution, by its name or its attribute's."""
    return cast("models.Field[Any, Any]", Execution._meta.get_field(name))


def execution_changes(changes: Mapping[str, Any], present: datetime) -> dict[str, Any]:
    """Changes of an execution with what follows from them: the key that is waited on is a column of its own, to search by."""
    full = dict(changes)
    if "waiting_on" in full:
        full["waiting_key"] = Wait.from_json(full["waiting_on"]).key
    full.setdefault("updated_at", present)
    fields = {name: execution_field(name) for name in full}
    return {fields[name].attname: storable(fields[name], value) for name, value in full.items()}
