"""What a row of the report says. Rows measure and judge; `report` only prints."""

from __future__ import annotations

from dataclasses import dataclass, field


class Unmeasurable(Exception):
    """A row could not be measured, or what was timed did not happen."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `ratio` is to the row's floor, of the same run; `is_ours` tells the package's from its peers'."""

    name: str
    text: str
    ratio: float | None = None
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `is_met` is None for a row without an aim; `checked` says what was asserted of the work itself."""

    name: str
    title: str
    conditions: str
    figures: tuple[Figure, ...]
    checked: str
    floor: str = ""
    aim: str = ""
    is_met: bool | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)


def check(holds: bool, otherwise: str) -> None:
    """Refuse to report a figure of something that did not happen."""
    if not holds:
        raise Unmeasurable(otherwise)
