"""What a body sees of the execution it runs in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.context import Verdicts
from reactor_coord.declare.references import SKIPPED_VALUE, UNSET
from reactor_coord.engine.events import StepProgress, StepRanReactor

if TYPE_CHECKING:
    from reactor_coord.runtime.gates import Hold
    from reactor_coord.runtime.tree import Frame, Tree


@dataclass(frozen=True, slots=True)
class HeldView:
    """A hold as a body sees it; `lost` is live. A key that the tree entered again is one hold, and lost where any entry is."""

    key: str
    primitive: str
    fencing_token: int
    _holds: tuple[Hold, ...]

    @property
    def lost(self) -> bool:
        """Whether it is known to be gone: what the body does from now on is unprotected."""
        return any(self.key in hold.lost for hold in self._holds)


class HeldViews(Mapping[tuple[str, str], HeldView]):
    """The holds of a tree by primitive and key, read when asked: `holds["lock", "acct:1"]`.

    By its key alone a hold is found where that is one thing: the lock of that key, or its only hold of any primitive.
    A period holds nothing, so it is not among them.
    """

    def __init__(self, holds: Callable[[], Iterable[Hold]]) -> None:
        self._holds = holds

    def _views(self) -> dict[tuple[str, str], HeldView]:
        views: dict[tuple[str, str], HeldView] = {}
        for hold in self._holds():
            for key in hold.taken.keys if hold.is_fenced else ():
                name = (hold.primitive, key.key)
                before = views[name]._holds if name in views else ()
                views[name] = HeldView(key.key, hold.primitive, key.fence, (*before, hold))
        return views

    def __getitem__(self, name: tuple[str, str] | str) -> HeldView:
        primitive, key = (None, name) if isinstance(name, str) else name
        views = self._views()
        found = {
            view.primitive: view for view in views.values() if view.key == key and primitive in {None, view.primitive}
        }
        if "lock" in found:
            return found["lock"]
        if len(found) == 1:
            return next(iter(found.values()))
        raise KeyError(_not_one_hold(key, primitive, sorted(found), sorted(views)))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._views())

    def __len__(self) -> int:
        return len(self._views())

    def fence(self, key: str, primitive: str | None = None) -> int:
        """Return the fencing token of that hold; raises `KeyError` naming what is held."""
        return self[key if primitive is None else (primitive, key)].fencing_token


def _not_one_hold(key: str, primitive: str | None, found: list[str], held: list[tuple[str, str]]) -> str:
    if primitive == "period":
        return f"{key!r}: a period is a mark and no hold: it has no fencing token"
    if found:
        return f'{key!r} is held here as {" and as ".join(found)}: say which, as in ("{found[0]}", {key!r})'
    what = f"the {primitive} {key!r}" if primitive else repr(key)
    return f"{what} is not held here; held: {', '.join(f'{kind} {name}' for kind, name in held) or 'nothing'}"


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

    @cached_property
    def kept(self) -> list[Hold]:
        """Locks of calls that ended inside a transaction still open: given back with what the body holds."""
        return []

    @property
    def holds(self) -> HeldViews:
        """What is held around the body."""
        raise NotImplementedError

    def fence(self, key: str, primitive: str | None = None) -> int:
        """Return the fencing token of the hold on `key`: the lock's, or of its only hold; or of that `primitive`'s.

        Raises `KeyError` naming what is held.
        """
        return self.holds.fence(key, primitive)

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


def _first_name(frame: Frame, step: str) -> str:
    """What a step was called when it first ran: its effects are known by that."""
    run = frame.runs.get(step)
    return (run.first_name if run is not None else "") or step


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
        self.idempotency_key = idempotency_key or f"{self.execution_id}:{_first_name(frame, step)}"

    @property
    def tree(self) -> Tree:
        """The execution tree that this body is of."""
        return self._frame.tree

    @property
    def results(self) -> Mapping[str, Any]:
        """The values of the steps done so far."""
        return StepResults(self._frame)

    @property
    def holds(self) -> HeldViews:
        """What the tree holds now, by primitive and key."""
        return HeldViews(lambda: self._frame.tree.holds)

    def ran(self, reactor: str, execution_id: str) -> None:
        """Tell that the body runs another reactor, as that execution."""
        self._frame.emit(StepRanReactor(step=self.step, ran=reactor, ran_id=execution_id))

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Tell how far the body is: signal and log line at once, a trace row with the step's own."""
        self._frame.emit(StepProgress(step=self.step, done=done, total=total, message=message))
