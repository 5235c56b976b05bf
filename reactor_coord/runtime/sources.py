"""What a map goes over, read in order, and how far it has got: kept with the map, so that it is gone on with after a kill.

| source | read | a cursor says |
|---|---|---|
| a queryset in the order of its keys | in portions, each behind the last row of the one before | the key of the last row |
| a queryset in an order of the author's, or a slice | its keys once, then the rows in portions | the keys still to come |
| a list, and what is no queryset of model rows | as it is | how many elements there are |

Rows that are deleted while a map is being written move no other row: nothing is found by its position among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.query import ModelIterable, QuerySet

from reactor_coord.declare.references import CallRef, MapRef, Reference, is_queryset
from reactor_coord.storage import codec

CHUNK = 500
"""Rows read, and elements written, at a time."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a map has got with its source."""

    written: int = 0
    """Elements that are written."""
    after: Any = None
    """The key of the row of the last of them, where rows come in the order of their keys."""
    keys: Sequence[Any] | None = None
    """The keys of all rows in the order of the source, where that is the author's own, with `place`: how many are dealt with."""
    place: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the step run keeps it."""
        rest = None if self.keys is None else [codec.encode(key) for key in self.keys[self.place :]]
        return {"written": self.written, "after": codec.encode(self.after), "rest": rest}

    @classmethod
    def from_json(cls, data: Any) -> Cursor:
        """Read what a step run keeps; the beginning where it keeps nothing."""
        given = data if isinstance(data, Mapping) else {}
        rest = given.get("rest")
        keys = [codec.decode(key) for key in rest] if isinstance(rest, list) else None
        return cls(written(data), codec.decode(given.get("after")), keys)


def written(source_cursor: Any) -> int:
    """How many elements a map has written, by what its step run keeps."""
    number = source_cursor.get("written") if isinstance(source_cursor, Mapping) else None
    return number if isinstance(number, int) else 0


Read = Iterator[tuple[Any, Cursor]]
"""Items, each with the cursor behind it."""


def read(source: Any, cursor: Cursor) -> Read:
    """The items behind the cursor. Raises `TypeError` for what is neither a list nor a queryset."""
    if _has_keys(source):
        return _by_key(source, cursor) if _is_in_order_of_keys(source) else _by_list_of_keys(source, cursor)
    if is_queryset(source):
        source = source.iterator(chunk_size=CHUNK)
    elif isinstance(source, (str, bytes, dict)) or not hasattr(source, "__iter__"):
        raise TypeError(f"map_each goes over a list or a queryset, not a {type(source).__name__}")
    return _by_place(source, cursor)


def is_read_alike_again(reference: Reference, source: Any) -> bool:
    """Whether a second reading finds the items of the first at their places, or needs no places: it may be written in parts."""
    return _has_keys(source) or not (is_queryset(source) or isinstance(reference, CallRef | MapRef))


def _has_keys(source: Any) -> bool:
    """Whether it gives rows of a model, each of which can be found again by its key."""
    is_of_rows = isinstance(source, QuerySet) and issubclass(source._iterable_class, ModelIterable)
    return is_of_rows and not source.query.combinator


def _is_in_order_of_keys(source: QuerySet[Any]) -> bool:
    query = source.query
    by_key = tuple(query.order_by) in {("pk",), (source.model._meta.pk.name,)}
    return (by_key or not source.ordered) and not query.is_sliced and not query.distinct_fields


def _by_key(source: QuerySet[Any], cursor: Cursor) -> Read:
    ordered, after, number = source.order_by("pk"), cursor.after, cursor.written
    while True:
        rows = list((ordered if after is None else ordered.filter(pk__gt=after))[:CHUNK])
        is_last = len(rows) < CHUNK
        if not is_last:  # a join may give a row several times: none of them is left to the next portion
            rows = [row for row in rows if row.pk != rows[-1].pk] or rows
        for row in rows:
            number, after = number + 1, row.pk
            yield row, Cursor(number, after)
        if is_last:
            return


def _by_list_of_keys(source: QuerySet[Any], cursor: Cursor) -> Read:
    keys = list(source.values_list("pk", flat=True)) if cursor.keys is None else cursor.keys
    found_by_key = source.all()
    found_by_key.query.clear_limits()
    number = cursor.written
    for start in range(0, len(keys), CHUNK):
        portion = keys[start : start + CHUNK]
        rows = {row.pk: row for row in found_by_key.order_by().filter(pk__in=portion)}
        for place, key in enumerate(portion, start + 1):
            if key in rows:
                number += 1
                yield rows[key], Cursor(number, keys=keys, place=place)


def _by_place(source: Any, cursor: Cursor) -> Read:
    for number, item in enumerate(source, 1):
        if number > cursor.written:
            yield item, Cursor(number)
