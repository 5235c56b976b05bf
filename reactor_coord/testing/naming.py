"""How steps are named in tests: by their own name, or by their path from a reactor: `"lines[2].reserve"`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from reactor_coord.runtime import units

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition
    from reactor_coord.models import Execution

_INDEX = re.compile(r"\[\d+\]")
_ATTEMPT = re.compile(r"~\d+$")
"""Behind the name of a `compose` step in the rows of its earlier attempts."""


def without_indexes(path: str) -> str:
    """`"lines[2].reserve"` as `"lines.reserve"`: any element."""
    return _INDEX.sub("", path)


def part_of(row: Execution) -> str:
    """What an execution adds to the path of what it ran for: the step of the one above, with the index of an element."""
    index = "" if row.element_index is None else f"[{row.element_index}]"
    return _ATTEMPT.sub("", row.parent_step) + index


class Name:
    """What one step of one execution may be called; `str` is its whole path."""

    __slots__ = ("_path", "_texts")

    def __init__(self, path: tuple[str, ...], step: str, *, is_alone: bool) -> None:
        """`is_alone`: the execution is one step of the reactor above it, by itself; it goes by that step's path."""
        whole = ".".join(path if is_alone else (*path, step))
        self._path = whole or step
        self._texts = {step, whole, without_indexes(whole), without_indexes(".".join((*path, step)))}

    def __str__(self) -> str:
        return self._path

    @classmethod
    def of(cls, row: Execution, step: str, path: tuple[str, ...]) -> Self:
        """The name of a step of that execution, whose path is this one."""
        return cls(path, step, is_alone=bool(path and step) and row.reactor.endswith(f"{units.MARK}{step}"))

    def fits(self, name: str) -> bool:
        """Whether that is a name of it."""
        return name in self._texts

    def is_at(self, path: str) -> bool:
        """Whether that is its whole path, with or without indexes. Unlike for `fits`, a nested step has no shorter name."""
        return path in {self._path, without_indexes(self._path)}

    def is_below(self, name: str) -> bool:
        """Whether it is a step inside the one of that name: of a composed reactor, or of an element."""
        return any(text.startswith((f"{name}.", f"{name}[")) for text in self._texts)


def names_in(definition: ReactorDefinition) -> Iterator[str]:
    """Every name and every path of a step, with those of the reactors inside it."""
    for name, step in definition.steps.items():
        yield name
        if step.reactor_class is not None:
            for below in names_in(step.reactor_class.definition):
                yield below
                yield f"{name}.{below}"
