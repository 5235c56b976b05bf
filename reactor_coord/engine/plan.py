"""Which step of a definition is next, from nothing but the statuses of its steps.

The definition is verified at import (no cycles, no unknown names), so that "no next step" means "all are settled".
"""

from __future__ import annotations

from collections.abc import Mapping

from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.engine.states import SETTLED_STEPS, StepStatus


def next_step(definition: ReactorDefinition, statuses: Mapping[str, StepStatus]) -> StepDefinition | None:
    """Return the first unsettled step, in definition order, whose dependencies are settled; None at the end."""
    settled = {name for name, status in statuses.items() if status in SETTLED_STEPS}
    for step in definition.steps.values():
        if step.name not in settled and step.depends_on <= settled:
            return step
    return None


def is_last(definition: ReactorDefinition, statuses: Mapping[str, StepStatus], name: str) -> bool:
    """Whether nothing is left to do once `name` is settled."""
    return all(other == name or statuses.get(other) in SETTLED_STEPS for other in definition.steps)
