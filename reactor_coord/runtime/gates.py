"""Coordination around a place: a step, a reactor, a direct call, a rollback. One order, one way in, one way out.

A primitive is a `Gate` and a row in `GATES`, whose order is the fixed order of acquisition. Acquiring gives back what
it took when a later gate refuses; releasing goes in reverse. What a refusal means is decided here once: in a worker the
execution parks (`Parked`), in process it waited already and fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from reactor_coord.coordination.types import Requester, Taken
from reactor_coord.engine.states import EventKind
from reactor_coord.errors import NotRunnable

if TYPE_CHECKING:
    from reactor_coord.declare.coordination import Declaration


@dataclass(frozen=True, slots=True)
class Place:
    """Where coordination is asked for, and for whom. `step` is empty for a reactor's own declarations."""

    requester: Requester
    reactor: str
    step: str
    arguments: Mapping[str, Any]
    redacted: frozenset[str]
    declarations: Mapping[str, Declaration]
    emit: Callable[..., None]
    parks: bool
    previous: Mapping[str, Any] | None = None
    """What this place waited on at its last park, if it was the one that parked."""
    due: datetime | None = None
    """When the last park meant to look again."""

    @property
    def path(self) -> str:
        """What tells this place from any other of the tree."""
        return f"{self.requester.execution}/{self.step}"

    def describe(self) -> str:
        """Name the place for a message."""
        return f"{self.reactor}.{self.step}" if self.reactor and self.step else self.reactor or self.step


@dataclass(eq=False)
class Hold:
    """One acquisition of the tree, from its taking to its giving back."""

    gate: Gate
    taken: Taken
    place: Place
    declaration: Any
    seen_at: float = field(default_factory=time.monotonic)
    """When it was last known to stand, by this process's monotonic clock."""
    lost: set[str] = field(default_factory=set)

    @property
    def primitive(self) -> str:
        """Which kind of hold."""
        return self.taken.primitive

    @property
    def is_inner(self) -> bool:
        """Whether the tree held it before: giving it back frees nothing."""
        return all(key.how == "reentered" for key in self.taken.keys)

    def as_json(self) -> list[dict[str, Any]]:
        """Describe it for the row of a parked execution."""
        return [
            {"primitive": self.primitive, "key": key.key, "fence": key.fence, "since": key.since, "step": self.place.step}
            for key in self.taken.keys
        ]


class Gate(Protocol):
    """One primitive at a place."""

    primitive: str

    def acquire(self, place: Place, declaration: Any, *, patience: float | None) -> Hold:
        """Take it, or raise `Parked`, a `ContentionError`, `CoordinationKeyError` or `CoordinationUnavailable`.

        `patience` is None for the way forward (the declaration decides) and seconds to wait for a rollback.
        """

    def release(self, hold: Hold) -> None:
        """Give it back and wake who got it; never raises for an unreachable Redis."""

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep it while the execution is parked, for at most `horizon` seconds."""

    def check(self, hold: Hold) -> None:
        """Note in `hold.lost` what is no longer held."""

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Step out of the lines of these keys, passing on a grant; with `parked`, let go of what the tree keeps parked."""

    def rollback_wait(self, declaration: Any) -> float | None:
        """Seconds a rollback waits for it; None when it never gates cleanup."""


def _gates() -> Sequence[Gate]:
    from reactor_coord.runtime.locking import LockGate

    return (LockGate(),)


GATES: dict[str, Gate] = {}
"""The primitives this version runs, in the fixed order of acquisition."""


def gates() -> Mapping[str, Gate]:
    """Return the table, built at first use."""
    if not GATES:
        GATES.update({gate.primitive: gate for gate in _gates()})
    return GATES


def refuse_unknown(declarations: Mapping[str, Any], where: str) -> None:
    """Raise `NotRunnable` for a declared primitive this version cannot enforce: never run it unprotected."""
    for primitive in declarations:
        if primitive not in gates():
            known = ", ".join(gates())
            raise NotRunnable(
                f"{where} declares {primitive!r}, which this version checks but does not run yet (it runs: {known}); "
                f"remove the declaration or wait for the release that has it"
            )


def acquire(place: Place, *, for_rollback: bool = False) -> list[Hold]:
    """Take everything the place declares, in the fixed order; all of it or nothing.

    For a rollback only what gates cleanup is taken, waiting up to its `rollback_wait`.
    """
    holds: list[Hold] = []
    try:
        for primitive, gate in gates().items():
            declaration = place.declarations.get(primitive)
            if declaration is None:
                continue
            patience = gate.rollback_wait(declaration) if for_rollback else None
            if not for_rollback or patience is not None:
                holds.append(gate.acquire(place, declaration, patience=patience))
    except BaseException:
        release(holds)
        raise
    return holds


def release(holds: list[Hold]) -> None:
    """Give back in reverse order, each whatever became of the others; empties the list."""
    while holds:
        hold = holds.pop()
        hold.gate.release(hold)
        for key in hold.taken.keys:
            hold.place.emit(
                EventKind.RELEASED,
                step=hold.place.step,
                primitive=hold.primitive,
                key=key.key,
                fence=key.fence,
                inner=hold.is_inner,
            )


def lost_keys(holds: Iterable[Hold]) -> list[tuple[Hold, str]]:
    """Return what is lost of these holds, asking again for any that has been out of sight as long as its ttl."""
    now = time.monotonic()
    lost: list[tuple[Hold, str]] = []
    for hold in holds:
        if now - hold.seen_at >= 0.9 * hold.taken.ttl:
            hold.gate.check(hold)
        lost += [(hold, key) for key in sorted(hold.lost)]
    return lost
