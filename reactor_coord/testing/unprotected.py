"""One step without its protection, for unit tests of its body: no Redis, no database, no retry, no rollback."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reactor_coord.declare.context import Verdicts
from reactor_coord.declare.step import Step

S = TypeVar("S", bound=Step)


@dataclass
class BareContext(Verdicts):
    """A context that belongs to no execution. Set what the body looks at; read what it reported in `progressed`."""

    execution_id: str = "00000000-0000-7000-8000-000000000000"
    root_id: str = "00000000-0000-7000-8000-000000000000"
    reactor: str = "bare"
    step: str = "bare"
    attempt: int = 1
    contention_attempts: int = 0
    idempotency_key: str = "bare"
    results: Mapping[str, Any] = field(default_factory=dict)
    holds: Mapping[Any, Any] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    progressed: list[tuple[int, int | None, str]] = field(default_factory=list)

    def fence(self, key: str, primitive: str | None = None) -> int:
        """A fencing token for any key of any primitive: the one in `fences`, or 1."""
        return self.fences.get(key, 1)

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Keep what was reported."""
        self.progressed.append((done, total, message))

    @property
    def logger(self) -> logging.Logger:
        """The steps' logger."""
        return logging.getLogger("reactor_coord.step")


def bare(step_class: type[S], /, *, context: BareContext | None = None, **inputs: Any) -> S:
    """An instance with validated inputs, nothing taken: call its `run()`, `guard()`, `undo(result)` yourself.

    `self.fail(...)` and the like leave the body by raising `reactor_coord.results.Decided`, whose `.result` tells which.
    Raises `InputValidationError` for inputs that break their declaration.
    """
    values = step_class.inputs_schema.validate(inputs)
    return step_class.bind(values, context or BareContext(step=step_class.__name__))
