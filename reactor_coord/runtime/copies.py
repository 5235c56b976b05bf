"""A copy of a value for the code of one step, so that what a body does to it is seen by no other step, retry or undo."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

UNCHANGEABLE = (type(None), bool, int, float, complex, str, bytes, Decimal, date, time, timedelta, tzinfo, UUID, Enum)


def private(value: T) -> T:
    """Return the value itself if nothing can change it, else a deep copy; what cannot be copied is handed on as it is."""
    if isinstance(value, UNCHANGEABLE):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a file, a lock, a client: an author's object decides by itself what copying means
        return value


def private_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with a private copy of each value."""
    return {name: private(value) for name, value in values.items()}
