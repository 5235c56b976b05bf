"""What a body sees of the execution it runs in."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.context import Verdicts
from reactor_coord.declare.references import SKIPPED_VALUE, UNSET
from reactor_coord.engine.states import EventKind

if TYPE_CHECKING:
    from reactor_coord.runtime.gates import Hold
    from reactor_coord.runtime.tree import Frame


@dataclass(frozen=True, slots=True)
class HeldView:
    """A hold as a body sees it; `lost` is live."""

    key: str
    primitive: str
    fencing_token: int
    _hold: Hold

    @property
    def lost(self) -> bool:
        """Whether it is known to be gone: what the body does from now on is unprotected."""
        return self.key in self._hold.lost


class StepResults(Mapping[str, Any]):
    """The values of the steps done so far, by step name."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        value = self._frame.result(name)
        if value is UNSET:
            raise KeyError(name)
        return None if value is SKIPPED_VALUE else value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._frame.definition.steps if self._frame.result(name) is not UNSET)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BodyContext(Verdicts):
    """What the contexts of a step and of a call of its own share."""

    execution_id: str
    reactor: str
    step: str
    idempotency_key: str

    def key_of_call(self, step: str) -> str:
        """Return the idempotency key of the next call of `step` inside this body: its own, and the same at every attempt."""
        calls: dict[str, int] = self.__dict__.setdefault("_calls", {})
        calls[step] = calls.get(step, 0) + 1
        return f"{self.idempotency_key}/{step}#{calls[step]}"

    @cached_property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry execution, reactor and step."""
        extra = {"execution": self.execution_id, "reactor": self.reactor, "step": self.step}
        return logging.LoggerAdapter(logging.getLogger("reactor_coord.step"), extra)


class StepContext(BodyContext):
    """The context of one step. `attempt` counts from 1 and includes attempts that cost a worker.

    `idempotency_key` is the same over retries and redeliveries of this step of this execution; never that of another, nor
    that of a call inside its body.
    """

    def __init__(
        self, frame: Frame, step: str, *, attempt: int = 1, contention_attempts: int = 0, idempotency_key: str = ""
    ) -> None:
        self._frame = frame
        self.execution_id = str(frame.execution.id)
        self.root_id = frame.tree.id
        self.reactor = frame.definition.label
        self.step = step
        self.attempt = attempt
        self.contention_attempts = contention_attempts
        self.idempotency_key = idempotency_key or f"{self.execution_id}:{step}"

    @property
    def results(self) -> Mapping[str, Any]:
        """The values of the steps done so far."""
        return StepResults(self._frame)

    @property
    def holds(self) -> Mapping[str, HeldView]:
        """What the tree holds now, by key."""
        return {
            key.key: HeldView(key.key, hold.primitive, key.fence, hold)
            for hold in self._frame.tree.holds
            for key in hold.taken.keys
        }

    def fence(self, key: str) -> int:
        """Return the fencing token of the hold on `key`; raises `KeyError` naming what is held."""
        holds = self.holds
        if key not in holds:
            raise KeyError(f"{key!r} is not held here; held: {', '.join(sorted(holds)) or 'nothing'}")
        return holds[key].fencing_token

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Tell how far the body is: signal and log line at once, a trace row with the step's own."""
        self._frame.emit(EventKind.PROGRESS, step=self.step, done=done, total=total, message=message)
