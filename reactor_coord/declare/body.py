"""The body of a `Step` or a `Reactor` while it is being read: a declaration that the class would not have is refused.

An ordinary class keeps the last of two assignments to one name, and nothing of an expression that is assigned to none. Both are
declarations that vanish: of two steps named `charge` one would never run. Only the namespace of the class body sees them.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABCMeta
from types import FrameType, FunctionType
from typing import Any

from reactor_coord.errors import DefinitionError

HOOKS = frozenset({"run", "guard", "where", "compensate", "undo"})


class Declared:
    """What declares something by standing in a class body under a name: an input, a step."""

    kind_of_declaration: str = ""
    written_at: int = 0
    """The line of the class body that made it; 0 outside one."""


class Body(dict[str, Any]):
    """The namespace of one class body. `made` are the steps that were made in it, under a name or not."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label
        self.made: list[Any] = []

    def __setitem__(self, name: str, value: Any) -> None:
        old = self.get(name)
        if old is not None and old is not value:
            self._check_replaced(name, old, value)
        super().__setitem__(name, value)

    def _check_replaced(self, name: str, old: Any, new: Any) -> None:
        if isinstance(old, Declared):
            line = f" in line {old.written_at}" if old.written_at else ""
            raise DefinitionError(
                f"{self.label}: {name!r} is declared twice: the {old.kind_of_declaration} of that name{line} would be lost. "
                "Give each a name of its own; one of several is chosen with if and else."
            )
        if name in HOOKS and _is_written_here(name, old) and _is_written_here(name, new):
            raise DefinitionError(
                f"{self.label}: {name} is defined twice; only the second would ever be called. Keep one of them."
            )

    def check_names(self) -> None:
        """Refuse a step that stands under no name, and so would never run."""
        named = set(map(id, self.values()))
        for node in self.made:
            if node.owner is None and id(node) not in named:
                raise DefinitionError(
                    f"{self.label}: the {node!r} in line {node.written_at} stands under no name, so it would never run. Give it "
                    f"one, as in {self.label.lower()}_step = {node.word}(...)."
                )


def _is_written_here(name: str, value: Any) -> bool:
    """Whether it comes from a `def` of this name in a class body, and not out of a decorator."""
    if not isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        return False
    return value.__qualname__.endswith(f".{name}") and not value.__qualname__.endswith(f"<locals>.{name}")


class BodyType(ABCMeta):
    """The class of `Step` and `Reactor`: it watches their bodies, and is an `ABCMeta` so that abstract mix-ins go with it."""

    @classmethod
    def __prepare__(metacls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> Body:
        return Body(name)

    def __new__(metacls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **kwargs: Any) -> Any:
        if isinstance(namespace, Body):
            namespace.check_names()
        return super().__new__(metacls, name, bases, dict(namespace), **kwargs)


def note_made(made: Declared, *, needs_a_name: bool) -> None:
    """Tell the class body in which this is being made, if it is made in one, or in a function that one calls."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function's; a class body's is not
        frame = frame.f_back
    if frame is None or not isinstance(frame.f_locals, Body):
        return
    made.written_at = frame.f_lineno
    if needs_a_name:
        frame.f_locals.made.append(made)
