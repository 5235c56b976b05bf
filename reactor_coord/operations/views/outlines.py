"""Reactors as they are declared: the list of them, their steps by depth, and what each one coordinates.

Reads definitions only, no row and no Redis. A definition that cannot be found is `None`, never an error: rows outlive
the code that wrote them, and their pages must open all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from reactor_coord.declare import registry
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.errors import ReactorCoordError
from reactor_coord.runtime import units

from .shapes import CoordinationView, ReactorOutline, StepOutline

logger = logging.getLogger("reactor_coord.operations")


def definition_of(name: str) -> ReactorDefinition | None:
    """The definition an execution was started from (of a unit, its one step's), or None when the code is gone."""
    try:
        return units.definition_of(name)
    except (ReactorCoordError, ImportError, AttributeError) as error:
        logger.debug("no definition for %s: %s", name, error)
        return None


def reactors() -> tuple[ReactorOutline, ...]:
    """Every registered reactor, by name."""
    found = registry.all_definitions()
    return tuple(outline(each) for each in sorted(found, key=lambda definition: definition.name))


def outline(definition: ReactorDefinition) -> ReactorOutline:
    """One reactor as an operator reads it."""
    depths = levels(definition.steps)
    return ReactorOutline(
        name=definition.name,
        label=definition.label,
        doc=(definition.doc or "").strip(),
        queue=definition.queue or "",
        inputs=tuple((name, _type_name(field)) for name, field in definition.schema.fields.items()),
        steps=tuple(
            StepOutline(
                name=name,
                kind=str(step.kind),
                runs=_runs(step),
                after=tuple(sorted(step.depends_on, key=list(definition.steps).index)),
                level=depths[name],
                coordination=declared(step.coordination),
            )
            for name, step in definition.steps.items()
        ),
        coordination=declared(definition.coordination),
        returns=definition.returns if isinstance(definition.returns, str) else "",
    )


def levels(steps: Mapping[str, StepDefinition]) -> dict[str, int]:
    """How deep in the graph each step stands: 0 depends on nothing, else one below its deepest source."""
    depth: dict[str, int] = {}
    waiting = list(steps)
    while waiting:
        left = []
        for name in waiting:
            sources = [source for source in steps[name].depends_on if source in steps]
            if all(source in depth for source in sources):
                depth[name] = 1 + max((depth[source] for source in sources), default=-1)
            else:
                left.append(name)
        if len(left) == len(waiting):  # a definition is verified at import; a page must not hang on one that is not
            depth.update(dict.fromkeys(left, 0))
            break
        waiting = left
    return depth


def declared(coordination: Mapping[str, Any]) -> tuple[CoordinationView, ...]:
    """What a target declares, one view per key, before anything is taken."""
    return tuple(
        CoordinationView(primitive=str(declaration.primitive), key="", state="pending", declared=key)
        for declaration in coordination.values()
        for key in key_templates(declaration)
    )


def key_templates(declaration: Any) -> Iterable[str]:
    """The keys of a declaration as written: format strings, or the name of the callable."""
    keys = getattr(declaration, "keys", None)
    if keys is None:
        key = getattr(declaration, "key", None)
        keys = () if key is None else (key,)
    texts = [_template(key) for key in keys]
    name = getattr(declaration, "name", None)
    return texts or [f"shared limit {name}" if name else str(declaration.primitive)]


def _template(key: Any) -> str:
    template = getattr(key, "template", key)
    return template if isinstance(template, str) else f"{getattr(template, '__qualname__', 'callable')}(...)"


def _runs(step: StepDefinition) -> str:
    target: type[Any] | None = step.reactor_class or step.step_class
    if target is None:
        return str(step.kind)
    return "inline function" if step.inline else target.__name__


def _type_name(field: Any) -> str:
    kind = getattr(field, "type", None)
    return getattr(kind, "__name__", None) or str(kind)
