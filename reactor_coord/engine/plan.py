"""Which step of a definition is next, from nothing but the statuses of its steps.

The definition is verified at import (no cycles, no unknown names), so that "no next step" means "all are settled".
"""

from __future__ import annotations

from collections.abc import Mapping

from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.engine.states import SETTLED_STEPS, StepStatus


def next_step(definition: ReactorDefinition, statuses: Mapping[str, StepStatus]) -> StepDefinition | None:
    """Return the first step, in definition order, that is neither settled nor handed off and needs nothing that is not.

    None: all are settled, or what is left waits for handed-off work.
    """
    settled = {name for name, status in statuses.items() if status in SETTLED_STEPS}
    for step in definition.steps.values():
        is_open = step.name not in settled and statuses.get(step.name) != StepStatus.DISPATCHED
        if is_open and step.depends_on <= settled:
            return step
    return None


def first_dispatched(definition: ReactorDefinition, statuses: Mapping[str, StepStatus]) -> StepDefinition | None:
    """Return the first step whose work is out with another worker and is waited for; a detached one is not."""
    for step in definition.steps.values():
        if statuses.get(step.name) == StepStatus.DISPATCHED and not step.options.get("detach"):
            return step
    return None


def is_past_background(definition: ReactorDefinition, statuses: Mapping[str, StepStatus], step: StepDefinition) -> bool:
    """Whether from this step on the reactor wants to be run by a worker."""
    if definition.background_after is not None and statuses.get(definition.background_after) in SETTLED_STEPS:
        return True
    before = definition.background_before
    return before is not None and step.index >= definition.steps[before].index


def is_last(definition: ReactorDefinition, statuses: Mapping[str, StepStatus], name: str) -> bool:
    """Whether nothing is left to do once `name` is settled."""
    return all(other == name or statuses.get(other) in SETTLED_STEPS for other in definition.steps)
