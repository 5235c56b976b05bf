"""What every write does to its values first: derive the columns that follow from others, and make text storable.

Texts of exceptions and keys come from anywhere. A NUL or a lone surrogate in one must not cost an execution its
checkpoint, so they are written as visible escapes here (the codec, which must give back what it got, tags them instead).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from django.db import models

from reactor_coord.engine.states import LEASED, is_terminal
from reactor_coord.models import Execution

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_UNSTORABLE_JSON = re.compile(r"\\u(?:0000|d[89a-f][0-9a-f]{2})")


def clean_text(text: str) -> str:
    """The text with NULs and lone surrogates spelt out."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean_json(value: Any) -> Any:
    """The value if any database can store it as JSON, else a copy with what none can spelt out as text."""
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _cleaned(value)
    return _cleaned(value) if _UNSTORABLE_JSON.search(written) else value


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
    return {
        field.attname: storable(field, getattr(row, field.attname))
        for field in row._meta.concrete_fields
        if field.attname not in without
    }


def execution_field(name: str) -> models.Field[Any, Any]:
    """A column of an execution, by its name or its attribute's."""
    return cast("models.Field[Any, Any]", Execution._meta.get_field(name))


def execution_changes(changes: Mapping[str, Any], present: datetime) -> dict[str, Any]:
    """Changes of an execution with what follows from them: an end has a time and no lease, a park no lease, and the key that
    is waited on is a column of its own, to search by."""
    full = dict(changes)
    status = full.get("status")
    if status is not None and status not in LEASED:
        full |= {"lease_token": "", "lease_expires_at": None}
    if status is not None and is_terminal(status):
        full.setdefault("finished_at", present)
    if "waiting_on" in full:
        full["waiting_key"] = str((full["waiting_on"] or {}).get("key") or "")
    full.setdefault("updated_at", present)
    fields = {name: execution_field(name) for name in full}
    return {fields[name].attname: storable(fields[name], value) for name, value in full.items()}
