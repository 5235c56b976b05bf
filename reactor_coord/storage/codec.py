"""Values as JSON that any database stores and any reader reads, and back, with the same type and value.

JSON's own types are written as they are, so that a result can be queried (`result__receipt="r1"`). Everything else is an object
with a tag: `{"$rc": "decimal", "v": "9.50"}`. `scalars` and `classes` have the tables of tags; containers are here. What
cannot be carried is refused with `CodecError`, which names the place, the type and the remedy.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.files.base import File
from django.db import models
from django.db.models.query import QuerySet
from django.http import HttpRequest
from django.utils.functional import Promise

from reactor_coord.conf import settings
from reactor_coord.errors import CodecError
from reactor_coord.storage.classes import (
    CLASS_KINDS,
    CLASS_KINDS_BY_TAG,
    class_named,
    name_of,
    read_instance,
    write_instance,
)
from reactor_coord.storage.element_values import ElementValues
from reactor_coord.storage.scalars import BY_TAG, SCALARS, Unwritable, is_plain

TAG = "$rc"
ORDER = "$order"
"""Beside the entries of a dict: its keys in order, where PostgreSQL's and MySQL's own order of keys would lose it."""

ELEMENTS = "elements"
"""Values that stay in the rows of a map's elements: the tag says whose."""

REDACTED = "redacted"
REDACTED_SHOWN = "[redacted]"
MAX_DEPTH = 100

_SEQUENCES: Mapping[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
_SEQUENCES_BY_TAG: Mapping[str, type] = {tag: kind for kind, tag in _SEQUENCES.items()}
_MAPPINGS: Mapping[type, str] = {dict: "dict", OrderedDict: "ordered_dict"}
_MAPPINGS_BY_TAG: Mapping[str, type] = {tag: kind for kind, tag in _MAPPINGS.items()}


def encode(value: Any, redacted: Collection[str] = frozenset(), *, path: str = "") -> Any:
    """The value as JSON. Top-level entries of a mapping named in `redacted` are marked, so that `display` hides them.

    `path` names the value in errors (`"result"`). Raises `CodecError` for what cannot be carried, for a value that contains
    itself, and for one above `MAX_PAYLOAD_BYTES`. The marks hide, they do not encrypt.
    """
    encoded = _Writer().write(value, path)
    if redacted and isinstance(value, dict) and TAG not in encoded:
        for name in encoded.keys() & set(redacted):
            encoded[name] = {TAG: REDACTED, "v": encoded[name]}
    _check_size(encoded, path)
    return encoded


def _check_size(encoded: Any, path: str) -> None:
    if encoded is None or isinstance(encoded, bool | int | float):
        return
    size, most = size_of(encoded), settings().MAX_PAYLOAD_BYTES
    if size > most:
        raise CodecError(
            f"{path or 'The value'} takes {size:,} bytes as JSON, more than the {most:,} of MAX_PAYLOAD_BYTES. Store it "
            "elsewhere and pass a reference to it, or raise the setting.",
            path=path,
        )


def size_of(encoded: Any) -> int:
    """Bytes of an encoded value, as `MAX_PAYLOAD_BYTES` counts them."""
    return len(json.dumps(encoded, separators=(",", ":"), ensure_ascii=False).encode())


def decode(data: Any, *, path: str = "") -> Any:
    """The value that `encode` was given. Model instances are loaded anew: a query each.

    Raises `CodecError` where a class, a model or a row is gone.
    """
    return _Reader().read(data, path)


def decode_legible(data: Any) -> dict[str, Any]:
    """Those entries of an encoded mapping that can be read: a row or a class that another one names may be gone by now."""
    try:
        return dict(decode(data))
    except CodecError:
        return dict(_legible(data))


def _legible(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in data.keys() - {TAG, ORDER}:
        with contextlib.suppress(CodecError):
            yield name, decode(data[name])


@dataclass(slots=True)
class _Writer:
    depth: int = 0

    def write(self, value: Any, path: str) -> Any:
        if is_plain(value):
            return value
        self.depth += 1
        if self.depth > MAX_DEPTH:
            place = path if len(path) < 200 else f"{path[:200]}…"
            raise CodecError(
                f"{place} is nested more than {MAX_DEPTH} deep; does the value contain itself?", path=place
            )
        try:
            return self._tagged(value, path)
        except Unwritable as error:
            raise _refusal(value, path, str(error)) from error
        finally:
            self.depth -= 1

    def _tagged(self, value: Any, path: str) -> Any:
        kind = _exact(type(value))
        if kind is list:
            return self._items(value, path)
        if kind in _MAPPINGS:
            return self._mapping(value, kind, path)
        if kind in _SEQUENCES:
            return {TAG: _SEQUENCES[kind], "v": self._items(_stable(value), path)}
        if kind in SCALARS:
            return {TAG: SCALARS[kind].tag, **SCALARS[kind].write(value)}
        if isinstance(value, ElementValues):
            return {TAG: ELEMENTS, "execution": str(value.execution_id), "step": value.step, "v": value.number}
        if isinstance(value, Promise):
            return self.write(str(value), path)
        return self._object(value, kind, path)

    def _object(self, value: Any, kind: type, path: str) -> dict[str, Any]:
        def nested(part: Any, place: str) -> Any:
            return self.write(part, path + place)

        if isinstance(value, models.Model):
            return {TAG: "model", **write_instance(value, nested)}
        for each in CLASS_KINDS:
            if each.is_class(kind):
                return {TAG: each.tag, "type": name_of(kind), **each.write(value, nested)}
        raise _refusal(value, path, _remedy(value))

    def _items(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.write(each, f"{path}[{index}]") for index, each in enumerate(values)]

    def _mapping(self, value: Mapping[Any, Any], kind: type, path: str) -> dict[str, Any]:
        if kind is dict and all(type(key) is str and is_plain(key) and key not in (TAG, ORDER) for key in value):
            entries = {key: self.write(each, f"{path}.{key}" if path else key) for key, each in value.items()}
            return entries if _is_in_order(list(entries)) else entries | {ORDER: list(entries)}
        pairs = [
            [self.write(key, f"{path}[key {key!r}]"), self.write(each, f"{path}[{key!r}]")]
            for key, each in value.items()
        ]
        return {TAG: _MAPPINGS[kind], "v": pairs}


def _exact(kind: type) -> type:
    # freezegun puts subclasses of its own in the place of datetime and date while a test runs.
    return kind.__base__ or kind if kind.__module__.startswith("freezegun.") else kind


def _stable(values: Collection[Any]) -> Iterable[Any]:
    if not isinstance(values, Set):
        return values
    return sorted(values, key=lambda each: (type(each).__name__, repr(each)))


def _is_in_order(keys: list[str]) -> bool:
    written = [key.encode() for key in keys]
    return written == sorted(written, key=lambda key: (len(key), key))


def _refusal(value: Any, path: str, remedy: str) -> CodecError:
    kind = type(value)
    named = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    message = f"{path or 'The value'} is a {named}, which cannot be stored: {remedy}."
    return CodecError(message, path=path, type=named)


_REMEDIES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((QuerySet,), "pass list(queryset.values(...)) or a list of its instances"),
    ((File, io.IOBase), "save it to a storage and pass its name"),
    ((HttpRequest,), "pass the values of the request that are needed"),
    ((BaseException,), "pass str(error), or raise it"),
    ((type,), "pass its name"),
    ((str, int, float, list, dict, set, tuple), "convert it to the plain type that it extends"),
    ((Iterator,), "pass a list of what it yields"),
)


def _remedy(value: Any) -> str:
    for kinds, remedy in _REMEDIES:
        if isinstance(value, kinds):
            return remedy
    if callable(value):
        return "pass what it returns, or its name"
    return "pass plain data, a dataclass, a pydantic model or a saved model instance"


class _Reader:
    def read(self, data: Any, path: str) -> Any:
        if isinstance(data, list):
            return [self.read(each, f"{path}[{index}]") for index, each in enumerate(data)]
        if not isinstance(data, dict):
            return data
        tag = data.get(TAG)
        if tag is None:
            return {key: self.read(data[key], f"{path}.{key}" if path else key) for key in _keys_of(data, path)}
        try:
            return self._tagged(tag, data, path)
        except (Unwritable, KeyError, TypeError, ValueError) as error:
            raise CodecError(
                f"{path or 'The value'} ({_described(data)}) cannot be read: {error}.", path=path
            ) from error

    def _tagged(self, tag: str, data: Mapping[str, Any], path: str) -> Any:
        def nested(part: Any, place: str) -> Any:
            return self.read(part, path + place)

        if tag in BY_TAG:
            return BY_TAG[tag].read(data)
        if tag in _SEQUENCES_BY_TAG:
            return _SEQUENCES_BY_TAG[tag](self.read(data["v"], path))
        if tag in _MAPPINGS_BY_TAG:
            pairs = ((self.read(key, path), self.read(each, path)) for key, each in data["v"])
            return _MAPPINGS_BY_TAG[tag](pairs)
        if tag == REDACTED:
            return self.read(data["v"], path)
        if tag == "model":
            return read_instance(data, nested)
        if tag == ELEMENTS:
            return ElementValues(UUID(data["execution"]), str(data["step"]), int(data["v"]))
        if tag not in CLASS_KINDS_BY_TAG:
            raise Unwritable(f"it has an unknown tag {tag!r}")
        each = CLASS_KINDS_BY_TAG[tag]
        kind = class_named(data["type"], each.is_class)
        if kind is None:
            raise Unwritable(f"there is no {each.tag} class of that name any more")
        return each.read(kind, data, nested)


def _keys_of(data: Mapping[str, Any], path: str) -> Iterable[str]:
    """The keys of a dict in their order; raises `CodecError` where what says the order is not what was written."""
    order = data.get(ORDER)
    if order is None:
        return data
    if not isinstance(order, list) or any(not isinstance(key, str) or key not in data for key in order):
        raise CodecError(f"{path or 'The value'} (dict) cannot be read: its order names other keys.", path=path)
    return order


def _described(data: Mapping[str, Any]) -> str:
    return str(data.get("type", data[TAG])).replace(":", ".")


LONGEST_TEXT = 2_000
MOST_ITEMS = 100


def display(data: Any) -> Any:
    """Encoded JSON for people: no tags, what is redacted hidden, what is long cut with a mark. Imports and loads nothing.

    Takes anything that a JSON column may contain, never raises, and gives plain JSON.
    """
    if isinstance(data, str):
        return _cut(data)
    if isinstance(data, list):
        return _shown_items(data)
    if isinstance(data, dict):
        return _shown_tag(data) if TAG in data else _shown_entries(data)
    return data


def _shown_tag(data: Mapping[str, Any]) -> Any:
    tag = data[TAG]
    if tag == REDACTED:
        return REDACTED_SHOWN
    try:
        if tag in BY_TAG:
            return display(BY_TAG[tag].show(data))
        if tag in _MAPPINGS_BY_TAG:
            return _shown_entries({str(display(key)): each for key, each in data["v"]})
        if tag == "model":
            return f"{data['type']} {display(data['v'])}"
        if tag == ELEMENTS:
            return f"the {data['v']:,} values of {_cut(str(data['step']))}, each in the row of its element"
        return display(data["v"])
    except (LookupError, TypeError, ValueError):
        return f"[unreadable {tag}]"


def _shown_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    order = data.get(ORDER)
    keys = [key for key in order if isinstance(key, str) and key in data] if isinstance(order, list) else list(data)
    shown = {_cut(str(key)): display(data[key]) for key in keys[:MOST_ITEMS]}
    return shown | {"…": f"{len(keys) - MOST_ITEMS:,} more"} if len(keys) > MOST_ITEMS else shown


def _shown_items(data: list[Any]) -> list[Any]:
    shown = [display(each) for each in data[:MOST_ITEMS]]
    return [*shown, f"… {len(data) - MOST_ITEMS:,} more"] if len(data) > MOST_ITEMS else shown


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"
