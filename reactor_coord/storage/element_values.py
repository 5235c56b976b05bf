"""The values of a map whose list would not fit into one column: read from the rows of its elements when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload
from uuid import UUID

from reactor_coord.errors import CodecError

PORTION = 500
"""Rows read at a time."""


@dataclass(frozen=True, eq=False)
class ElementValues(Sequence[Any]):
    """The values of a map's elements in their order, like a list that cannot be changed. Equal to a list of equal values.

    Iterating reads them in portions. Raises `CodecError` where the row of an element was deleted.
    """

    execution_id: UUID
    step: str
    number: int

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self.number, PORTION):
            yield from self._read(range(start, min(start + PORTION, self.number)))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._read(range(self.number)[index])
        return self._read([range(self.number)[index]])[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | ElementValues) or len(other) != self.number:
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as a list has none

    def __repr__(self) -> str:
        return f"<{self.number:,} values of {self.step} of {self.execution_id}>"

    def _read(self, indexes: Sequence[int]) -> list[Any]:
        from reactor_coord.models import Execution
        from reactor_coord.storage import clock, codec

        rows = Execution.objects.using(clock.alias()).filter(parent_id=self.execution_id, parent_step=self.step)
        if indexes:
            rows = rows.filter(element_index__range=(min(indexes), max(indexes)))
        encoded = dict(rows.order_by().values_list("element_index", "result")) if indexes else {}
        gone = next((index for index in indexes if index not in encoded), None)
        if gone is not None:
            raise CodecError(
                f"element {gone} of {self.step} of execution {self.execution_id} is gone: its row was deleted"
            )
        return [codec.decode(encoded[index]) if encoded[index] is not None else None for index in indexes]
