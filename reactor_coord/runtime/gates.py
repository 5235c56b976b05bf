"""Coordination around a place: a step, a reactor, a direct call, a rollback. One order, one way in, one way out.

A gate is one phase of one primitive; the order of `phases` is the fixed order of acquisition (`semantics` 1). A primitive
is one gate, or two where it is looked at early and settled last. Acquiring gives back what it took when a later gate
refuses; releasing goes in reverse, and tells each gate how the work under it ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from reactor_coord import coordination, probes
from reactor_coord.coordination import Ask, Requester, Taken
from reactor_coord.engine.events import Event, HoldReleased
from reactor_coord.engine.records import ParkedHold, Wait
from reactor_coord.errors import (
    NO_ANSWER,
    CoordinationError,
    CoordinationKeyError,
    DeadlockDetected,
    NotRunnable,
)
from reactor_coord.results import Decided, Failure
from reactor_coord.runtime.dispatch import wake
from reactor_coord.storage import clock

if TYPE_CHECKING:
    from reactor_coord.declare.coordination import Declaration
    from reactor_coord.declare.keys import Key
    from reactor_coord.results import Result
    from reactor_coord.runtime.surroundings import Lender


logger = logging.getLogger("reactor_coord")


def path_of(requester: Requester) -> str:
    """Name a place in its tree."""
    return f"{requester.execution}/{requester.step}"


def identity(requester: Requester) -> str:
    """Name an arrival: the same place of the same tree is the same position, and the same slot, whenever it comes."""
    return f"{requester.owner}|{path_of(requester)}"


def at_path(requester: Requester, path: str) -> Requester:
    """The same owner, as it asked at that place."""
    execution, _, step = path.partition("/")
    return replace(requester, execution=execution, step=step)


class Emit(Protocol):
    """How an event is told, and of which execution."""

    def __call__(self, event: Event, *, at: datetime | None = None, at_once: bool = False) -> None:
        """Tell it, at this time or now; `at_once`: its row is not to wait for the next checkpoint."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where coordination is asked for, and for whom. `step` is empty for a reactor's own declarations."""

    requester: Requester
    reactor: str
    step: str
    arguments: Mapping[str, Any]
    redacted: frozenset[str]
    declarations: Mapping[str, Declaration]
    emit: Emit
    parks: bool
    previous: Wait | None = None
    """What this place waited on at its last park, if it was the one that parked."""
    keeps: bool = False
    """Whether the tree has what others may wait for, beside what is taken here: a wait may then close a ring."""
    family: str = ""
    """The execution that a person started, which its retries name; empty outside any."""
    retry_of: str = ""
    """The family that this one is the retry of."""
    admitted_at: datetime | None = None
    """When it passed its gates, where what it is around has begun and goes on after a park."""
    lender: Lender | None = None
    """Whose holds this place may rely on: of the execution in whose body it is."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What an early phase of a primitive leaves for its last one, and what is known of when it comes again."""
    texts: dict[Key, str] = field(default_factory=dict)
    waited: bool = False
    """Whether what is around it has stepped aside before, for something that it declares."""
    ask_again: Callable[[], Result | None] | None = None
    """Asks a step that has waited once more whether it runs, under its keys; None: the body follows."""

    @property
    def is_to_be_asked(self) -> bool:
        """Whether it has waited, here or before it parked, and has not been asked again since."""
        return self.ask_again is not None and ASKED not in self.notes and (self.waited or WAITED in self.notes)

    def confirm(self) -> None:
        """Ask once more, if it is to be asked; raises `Decided` when no body follows."""
        if self.ask_again is None or not self.is_to_be_asked:
            return
        self.notes[ASKED] = True
        refusal = self.ask_again()
        if refusal is not None:
            raise Decided(refusal)

    @property
    def path(self) -> str:
        """What tells this place from any other of the tree."""
        return path_of(self.requester)

    def text_of(self, key: Key) -> str:
        """A declared key with this place's values; computed once, so that every phase means the same."""
        found = self.texts.get(key)
        if found is None:
            found = self.texts[key] = key.compute(self.arguments, self.redacted)
        return found

    def wait_for(self, primitive: str, key: str, keys: Sequence[str], at: datetime) -> Wait:
        """A wait at this place that begins now, or goes on: `since` and the number of refusals are carried over."""
        before = self.previous or Wait()
        return Wait(
            path=self.path,
            reactor=self.reactor,
            step=self.step,
            primitive=primitive,
            key=key,
            keys=tuple(keys),
            since=before.since or at,
            attempts=before.attempts + 1,
        )

    def texts_by_primitive(self) -> dict[str, list[str]]:
        """The keys that were computed here so far: what a retry and a rollback of this place ask for, too."""
        found = {
            primitive: [self.texts[key] for key in declaration.keys if key in self.texts]
            for primitive, declaration in self.declarations.items()
        }
        return {primitive: texts for primitive, texts in found.items() if texts}

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
    lost_and_told: set[str] = field(default_factory=set)
    taken_by: dict[str, str] = field(default_factory=dict)
    """Of what is lost, who was found to have it, in words."""
    telling: threading.Lock = field(default_factory=threading.Lock)
    is_told: bool = True
    """Whether its release is an event: not for what only marks or advances."""
    is_fenced: bool = True
    """Whether others are kept out meanwhile, under a fencing token: not by a mark that is still to be set."""

    @property
    def primitive(self) -> str:
        """Which kind of hold."""
        return self.taken.primitive

    @property
    def on_lost(self) -> str:
        """What becomes of a step whose body lost it: `fail`, or `warn` where the declaration says so."""
        return str(getattr(self.declaration, "on_lost", "fail"))

    @property
    def is_inner(self) -> bool:
        """Whether the tree held it before: giving it back frees nothing."""
        return all(key.how == "reentered" for key in self.taken.keys)

    @property
    def guards_writes(self) -> bool:
        """Whether its next holder must see what was written under it, and the tree enters it again meanwhile: a lock."""
        return self.primitive == "lock"

    def recorded(self, state: str = "") -> tuple[ParkedHold, ...]:
        """Describe its keys for a row: of a parked execution that keeps them, or of a step run, with a `HoldState`."""
        place = self.place
        return tuple(
            ParkedHold(
                self.primitive,
                key.key,
                key.fence if self.is_fenced else None,
                key.since,
                place.step,
                place.path,
                state,
            )
            for key in self.taken.keys
        )


COMES_AGAIN_IN = "comes_again_in"
"""Note of a place: seconds until it is looked at again. What it keeps meanwhile shows no sign of life for so long."""


WAITED = "waited"
"""Note of a place: it blocked for something."""

ASKED = "asked"
"""Note of a place: it was asked once more whether its step runs."""


class Ending(StrEnum):
    """How the work under a hold ended, for gates to which that matters (a period's mark, an ordered position)."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    RETRYING = "retrying"
    HALTED = "halted"
    REFUSED = "refused"
    """A later gate refused: the work has not begun, and may come again."""
    ABANDONED = "abandoned"
    """It ended without a word: a lost lease, an interruption, a rollback's hold."""


class Gate(Protocol):
    """One phase of one primitive at a place."""

    primitive: str
    once: bool
    """Passed once by a reactor, or a step around one: not asked again when it resumes."""
    spends: bool
    """Whether passing it costs what cannot be handed back: only who is known to run passes it."""

    def applies(self, place: Place) -> bool:
        """Whether this phase has anything to do at this place, which declares the primitive."""

    def ask(self, place: Place, declaration: Any) -> Ask[Any] | None:
        """What to ask Redis for on the way forward, to be sent with what other gates ask. None: it asks by itself."""

    def acquire(
        self, place: Place, declaration: Any, *, patience: float | None, answer: Any | None = None
    ) -> Hold | None:
        """Pass or take it, or raise `Parked`, `Decided`, a `ContentionError`, `CoordinationKeyError`, one of `NO_ANSWER`.

        `patience` is None for the way forward (the declaration decides) and seconds to wait for a rollback. `answer` is that
        of its `ask`, where it was sent. Returns None where there is nothing to give back.
        """

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """What gives it back, to be sent with others or by `release`; each answers whom to wake."""

    def release(self, hold: Hold, ending: Ending) -> None:
        """Give it back and wake who got it; never raises for an unreachable Redis."""

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep it while the execution is parked, for at most `horizon` seconds."""

    def check(self, hold: Hold) -> None:
        """Note in `hold.lost` what is no longer held."""

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Step out of the lines of these keys, passing on a grant; with `parked`, let go of what the tree keeps parked."""

    def take_back(self, place: Place, declaration: Any) -> None:
        """The success of the work at this place was undone: what it told later arrivals goes as well. Repeatable."""

    def rollback_wait(self, declaration: Any) -> float | None:
        """Seconds a rollback waits for it; None when it never gates cleanup."""


@lru_cache(maxsize=1)
def phases() -> tuple[Gate, ...]:
    """The gates in the fixed order of acquisition."""
    from reactor_coord.runtime.locking import LockGate
    from reactor_coord.runtime.ordering import OrderedGate
    from reactor_coord.runtime.periodic import PeriodCheck, PeriodRecheck
    from reactor_coord.runtime.rate_limiting import RateCharge, RateLook
    from reactor_coord.runtime.semaphores import SemaphoreGate

    return (OrderedGate(), PeriodCheck(), RateLook(), LockGate(), SemaphoreGate(), PeriodRecheck(), RateCharge())


def gate_of(primitive: str) -> Gate | None:
    """The gate that answers for a primitive's lines and keys: its last phase."""
    return next((gate for gate in reversed(phases()) if gate.primitive == primitive), None)


def refuse_unknown(declarations: Mapping[str, Any], where: str) -> None:
    """Raise `NotRunnable` for a declared primitive this version cannot enforce: never run it unprotected."""
    known = {gate.primitive for gate in phases()}
    for primitive in declarations:
        if primitive not in known:
            raise NotRunnable(
                f"{where} declares {primitive!r}, which this version checks but does not run yet "
                f"(it runs: {', '.join(sorted(known))}); remove the declaration or wait for the release that has it"
            )


def rollback_patience(place: Place) -> float:
    """Seconds for which a rollback waits for what this place declares."""
    waits = (
        gate.rollback_wait(place.declarations[gate.primitive])
        for gate in phases()
        if gate.primitive in place.declarations
    )
    return max((wait for wait in waits if wait is not None), default=0.0)


def acquire(place: Place, *, for_rollback: bool = False) -> list[Hold]:
    """Take everything the place declares, in the fixed order; all of it or nothing.

    For a rollback only what gates cleanup is taken, waiting up to its `rollback_wait`. What was admitted before its park
    passes by what is asked only once.
    """
    from reactor_coord.runtime import deadlocks
    from reactor_coord.runtime.parking import Parked
    from reactor_coord.runtime.surroundings import borrowed
    from reactor_coord.runtime.unavailable import wait_out

    holds: list[Hold] = []
    primitive, here = "", place
    gate: Gate | None = None
    asks: dict[Gate, Ask[Any]] = {}
    answers: dict[Gate, Any] = {}
    ahead = list(_gates_of(place, for_rollback=for_rollback))
    try:
        while ahead:
            if ahead[0][0].spends:
                place.confirm()
            if not answers and len(ahead) > 1 and not for_rollback and place.lender is None:
                answers = _ask_together(place, [each for each, _ in ahead], asks)
            gate, patience = ahead.pop(0)
            primitive = gate.primitive
            if holds and not here.keeps:  # who blocks for this one has those meanwhile; who parks gives them back
                here = replace(place, keeps=True)
            declaration, answer = place.declarations[primitive], answers.pop(gate, None)
            lent, declaration = borrowed(place, primitive, declaration, patience)
            holds += lent
            if declaration is None:
                continue
            hold = gate.acquire(here, declaration, patience=patience, answer=answer)
            holds += [hold] if hold is not None else []
        place.confirm()
    except BaseException as met:
        error = (wait_out(place, met) if not for_rollback else None) or met
        for unread in answers:
            asks[unread].abandon()
        turns = [hold for hold in holds if hold.primitive == "ordered_lock"]  # kept by who will come again
        if isinstance(error, Parked):
            place.notes[COMES_AGAIN_IN] = max(0.0, (error.park.resume_at - clock.present()).total_seconds())
            error.keep(tuple(kept for hold in turns for kept in hold.recorded()))
        release([hold for hold in holds if hold not in turns], Ending.REFUSED)
        if isinstance(error, Parked) and error is met and gate is not None and (place.keeps or turns):
            try:
                deadlocks.look_before_park(gate, place, error.park)
            except DeadlockDetected as found:
                release(turns, _ending_of(found, place))
                raise found from None
        release(turns, _ending_of(error, place))
        if isinstance(error, CoordinationError):
            error.fill(reactor=place.reactor or None, step=place.step or None, primitive=primitive or None)
        if error is not met:
            raise error from met
        raise
    return holds


def _gates_of(place: Place, *, for_rollback: bool) -> Iterable[tuple[Gate, float | None]]:
    """The gates of a place in order, each with the seconds for which a rollback waits there."""
    for gate in phases():
        declaration = place.declarations.get(gate.primitive)
        if declaration is None or not gate.applies(place) or (place.admitted_at is not None and gate.once):
            continue
        patience = gate.rollback_wait(declaration) if for_rollback else None
        if not for_rollback or patience is not None:
            yield gate, patience


def _ask_together(place: Place, gates: Iterable[Gate], asks: dict[Gate, Ask[Any]]) -> dict[Gate, Any]:
    """Answers of as many of these gates, from the first, as can be asked in one round trip; none where that would be one."""
    asks.clear()
    for gate in gates:
        if gate.spends and place.is_to_be_asked:
            break
        try:
            ask = gate.ask(place, place.declarations[gate.primitive])
        except CoordinationError:
            break  # a key that cannot be had, say: it is raised when it is this gate's turn
        if ask is None:
            break
        asks[gate] = ask
    if len(asks) < 2:
        return {}
    answers = coordination.together(list(asks.values()), until_refused=True)
    return dict(zip(asks, answers or (), strict=False))


def _ending_of(error: BaseException, place: Place) -> Ending:
    """How a turn ends whose work a later gate kept from beginning: in a worker a failure or a skip is for good."""
    if not place.parks:
        return Ending.REFUSED
    if isinstance(error, CoordinationError):
        return Ending.FAILED
    if isinstance(error, Decided):
        return Ending.FAILED if isinstance(error.result, Failure) else Ending.SKIPPED
    return Ending.REFUSED


def take_back(place: Place) -> None:
    """The success of the work at this place was undone; once, or again after a crash in between."""
    for primitive, declaration in place.declarations.items():
        gate = gate_of(primitive)
        if gate is None:
            continue
        try:
            gate.take_back(place, declaration)
        except CoordinationKeyError as error:  # a key that cannot be had was never passed either
            logger.debug("event=reactor_coord.nothing_to_take_back primitive=%s error=%s", primitive, error)


def release(holds: list[Hold], ending: Ending) -> None:
    """Give back in reverse order, each whatever became of the others, in one round trip; empties the list."""
    if not holds:
        return
    probes.reached("release.before")
    is_given = len(holds) > 1 and _give_together(holds, ending)
    while holds:
        hold = holds.pop()
        if not is_given:
            hold.gate.release(hold, ending)
        for key in hold.taken.keys if hold.is_told else ():
            hold.place.emit(
                HoldReleased(
                    step=hold.place.step,
                    primitive=hold.primitive,
                    key=key.key,
                    fence=key.fence,
                    inner=hold.is_inner,
                )
            )
    probes.reached("release.after")


def _give_together(holds: list[Hold], ending: Ending) -> bool:
    """False: each is to be given back by itself. Redis did not answer, and they know how to go on without; or it is a cluster."""
    asks = [ask for hold in reversed(holds) for ask in hold.gate.giving(hold, ending)]
    if not asks:
        return True
    try:
        answers = coordination.together(asks, until_refused=False)
    except NO_ANSWER:
        return False
    if answers is None:
        return False
    wake([name for answer in answers for name in answer])
    return True


def lost_keys(holds: Iterable[Hold]) -> list[tuple[Hold, str]]:
    """Return what is lost of these holds, asking again for any that has been out of sight as long as its ttl."""
    now = time.monotonic()
    lost: list[tuple[Hold, str]] = []
    for hold in holds:
        if now - hold.seen_at >= 0.9 * hold.taken.ttl:
            hold.gate.check(hold)
        lost += [(hold, key) for key in sorted(hold.lost)]
    return lost
