"""The port through which declarations are run. The runtime binds itself to it; a class here only knows that it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from reactor_coord.errors import NotRunnable

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition
    from reactor_coord.declare.step import Step
    from reactor_coord.runtime.outcome import ExecutionHandle, Outcome


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How one run differs from the default. `countdown` in seconds; `queue=None` is the reactor's own."""

    idempotency_key: str | None = None
    queue: str | None = None
    countdown: float = 0.0
    tags: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    allow_in_atomic: bool = False
    independent: bool = False


class Entrance(Protocol):
    """What the runtime offers to declarations."""

    def run(self, definition: ReactorDefinition, inputs: Mapping[str, Any], options: RunOptions) -> Outcome: ...

    def enqueue(
        self, definition: ReactorDefinition, inputs: Mapping[str, Any], options: RunOptions
    ) -> ExecutionHandle: ...

    def resume(
        self, definition: ReactorDefinition, correlation_id: str, step: str | None, payload: Any
    ) -> ExecutionHandle: ...

    def call_step(self, step_class: type[Step], inputs: Mapping[str, Any], context: Any) -> Any: ...


_bound: list[Entrance] = []


def bind_entrance(implementation: Entrance) -> None:
    """Make this the way in; the one bound before is forgotten."""
    _bound[:] = [implementation]


def entrance() -> Entrance:
    """The way in. Raises `NotRunnable` while nothing is bound."""
    if not _bound:
        raise NotRunnable(
            'Nothing can run yet: add "reactor_coord" to INSTALLED_APPS and let Django start (django.setup()) first.'
        )
    return _bound[0]
