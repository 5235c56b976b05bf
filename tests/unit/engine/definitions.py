"""Definitions as the engine reads them, made directly: what the compiler would refuse is never among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactor_coord import Reactor
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.inputs import InputSchema


def a_step(
    name: str, index: int, *, after: frozenset[str] = frozenset(), options: Mapping[str, Any] | None = None
) -> Any:
    """A step that depends on others by order alone."""
    return StepDefinition(
        name=name,
        index=index,
        kind="step",
        step_class=None,
        reactor_class=None,
        arguments={},
        schema=None,
        after=after,
        depends_on=after,
        where=None,
        where_names=frozenset(),
        retry=None,
        coordination={},
        redacted=frozenset(),
        inline=True,
        options=options or {},
    )


def a_reactor(
    edges: Mapping[str, frozenset[str]],
    *,
    detached: frozenset[str] = frozenset(),
    background_after: str | None = None,
    background_before: str | None = None,
) -> ReactorDefinition:
    """A reactor whose steps, in this order, depend on the named earlier ones."""
    steps = {
        name: a_step(name, index, after=after, options={"detach": name in detached})
        for index, (name, after) in enumerate(edges.items())
    }
    return ReactorDefinition(
        name="tests.Example",
        label="Example",
        doc="",
        cls=Reactor,
        schema=InputSchema("Example", {}),
        steps=steps,
        returns=None,
        coordination={},
        queue=None,
        on_crash="abort",
        allow_in_atomic=False,
        background_after=background_after,
        background_before=background_before,
        fingerprint="",
    )
