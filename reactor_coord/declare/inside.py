"""What a reactor declares that would mean nothing inside another execution: refused where it is composed or mapped."""

from __future__ import annotations

from typing import Any

from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.errors import DefinitionError

_BACKGROUND = ("background_after", "background_before")


def check_inside(place: str, kind: str, word: str, target: Any, outer: str) -> None:
    """Check the reactor that a `compose` or a `map_each` runs as a part of an execution of `outer`."""
    definition: ReactorDefinition | None = getattr(target, "definition", None)
    if definition is None or kind not in ("compose", "map"):
        return
    if kind == "map" and (question := _interrupt_in(definition)):
        raise DefinitionError(
            f"{place}: {word}({definition.label}, ...) has the interrupt {question!r} in it, and an element of a map cannot "
            f"pause. Ask before the map or after it, in {outer} itself, or hand each item to an execution of its own "
            f"with {definition.label}.enqueue(...) in a step."
        )
    for option in _BACKGROUND:
        if getattr(definition, option) is not None:
            raise DefinitionError(
                f"{place}: {definition.label} declares {option} = {getattr(definition, option)}, which would be ignored: inside "
                f"another execution it runs where that runs. Declare {option} on {outer}, or use a subclass of "
                f"{definition.label} with {option} = None."
            )


def _interrupt_in(definition: ReactorDefinition) -> str:
    """The path of the first interrupt, `review.ask`; empty when there is none. What is handed off is an execution of its own."""
    for step in definition.steps.values():
        if step.kind == "interrupt":
            return step.name
        if step.kind == "compose" and step.reactor_class is not None:
            inner = _interrupt_in(step.reactor_class.definition)
            if inner:
                return f"{step.name}.{inner}"
    return ""
