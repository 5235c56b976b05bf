"""The text of a value in a key: one that every process agrees on, or the reason why there is none.

A set prints itself in another order in every process, a function with its place in memory. Two processes would then hold
two keys, and both would go on: so what has no text of its own is refused, however deep in the value it stands.
"""

from __future__ import annotations

import collections.abc as abc
import re
import types
import typing
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

_PLAIN = (str, bytes, int, float, complex, Decimal, Fraction, UUID, date, time, timedelta, range, PurePath, type(None))
_UNORDERED = (Mapping, Set, abc.ValuesView)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_DEEPEST = 6
"""Levels of containers and attributes that are looked into; texts of values nested deeper are taken as they come."""


class NoText(Exception):
    """There is no such text; the message says what is there instead, as in `a set, whose order is not fixed`."""


def stable_text(value: Any, *, as_repr: bool = False) -> str:
    """The text, in Unicode normal form NFC: of an enum its value's, of a model instance its primary key's.

    `as_repr`: what `repr` gives, as `{name!r}` asks for. Raises `NoText`.
    """
    if not as_repr:
        value = _counted(value)
    check_stable(value, as_repr=as_repr)
    text = normal(value if isinstance(value, str) and not as_repr else repr(value) if as_repr else str(value))
    if not text:
        raise NoText("empty")
    return text


def normal(text: str) -> str:
    """The text in the form in which keys are compared."""
    return unicodedata.normalize("NFC", text)


def check_stable(value: Any, *, as_repr: bool = False) -> None:
    """Raise `NoText` unless the value prints itself the same way in every process."""
    if value is None:
        raise NoText("None")
    if problem := _problem(_counted(value), as_repr, 0):
        raise NoText(problem)


def _counted(value: Any) -> Any:
    """What an enum or a model instance counts as."""
    if isinstance(value, Enum):
        value = value.value
    return value.pk if hasattr(value, "_meta") and hasattr(value, "pk") else value


def _problem(value: Any, as_repr: bool, depth: int) -> str:
    """Why its text may differ; empty when it does not."""
    if depth > _DEEPEST or isinstance(value, _PLAIN):
        return ""
    name = type(value).__name__
    if isinstance(value, _UNORDERED):
        return f"a {name}, whose order is not fixed; name one value in it"
    if isinstance(value, Sequence):
        inside = (_problem(_counted(item), True, depth + 1) for item in value)
        problem = next(filter(None, inside), "")
        if problem or isinstance(value, list | tuple):
            return problem and f"a {name} with {problem}"
    return _problem_of_object(value, name, as_repr, depth)


def _problem_of_object(value: Any, name: str, as_repr: bool, depth: int) -> str:
    kind: Any = type(value)
    has_own = kind.__repr__ is not object.__repr__ or (kind.__str__ is not object.__str__ and not as_repr)
    if not has_own:
        return f"a {name}, which has no text of its own; name one attribute of it"
    text = repr(value) if as_repr else str(value)
    if _ADDRESS.search(text):
        return f"a {name}, whose text is its place in memory; name one attribute of it"
    for attribute in _attributes(value):
        problem = _problem(_counted(attribute), True, depth + 1)
        if problem and repr(attribute) in text:
            return f"a {name} with {problem}"
    return ""


def _attributes(value: Any) -> Iterator[Any]:
    yield from getattr(value, "__dict__", {}).values()
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot):
                yield getattr(value, slot)
    if isinstance(value, BaseException):
        yield from value.args


def unstable_type(annotation: Any) -> str:
    """The type inside an annotation whose values never have such a text, as in `list[set[int]]`; empty if there is none.

    Of a union each member but `None` must be one: a value of another member is fine.
    """
    origin = typing.get_origin(annotation)
    inside = typing.get_args(annotation)
    if origin is typing.Annotated:
        return unstable_type(inside[0])
    if origin in (typing.Union, types.UnionType):
        found = [unstable_type(each) for each in inside if each is not type(None)]
        return found[0] if all(found) else ""
    kind: Any = origin or annotation
    if not isinstance(kind, type):
        return ""
    if issubclass(kind, _UNORDERED) or kind is abc.Callable:
        return kind.__name__
    return next(filter(None, map(unstable_type, inside)), "") if issubclass(kind, Sequence) else ""
