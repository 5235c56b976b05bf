"""The ordered lock as a gate: first of all, for nothing else is held while waiting for a turn; given back last.

The position is kept over parks, retries and redeliveries, given back by a synchronous arrival out of turn, and passes on
when the work has ended. After a failed position of a strict line the later ones skip.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from reactor_coord.coordination import Ask, NotYet, Requester, Turn, ordered_lines
from reactor_coord.declare.coordination import OrderedLockDeclaration
from reactor_coord.engine.states import EventKind, ParkKind
from reactor_coord.errors import CoordinationUnavailable, OutOfTurn
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.contention import snooze_policy
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.gates import COMES_AGAIN_IN, Ending, Hold, Place, identity
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

logger = logging.getLogger("reactor_coord")

CHAIN_FAILED = "ordered_lock_chain_failed"
PASSED = frozenset({Ending.SUCCEEDED, Ending.SKIPPED, Ending.HALTED, Ending.FAILED})


def reserve(place: Place) -> None:
    """Have a position before the work arrives: a reactor's is given when it is enqueued."""
    declaration = place.declarations["ordered_lock"]
    assert isinstance(declaration, OrderedLockDeclaration)
    key = place.text_of(declaration.key)
    requester = replace(place.requester, claim="")
    timeout, ttl = declaration.poison_pill_timeout, declaration.ttl
    ordered_lines().enter(key, identity(requester), requester, poison_timeout=timeout, ttl=ttl)


class OrderedGate:
    """One's turn in a line."""

    primitive = "ordered_lock"
    once = False

    def applies(self, place: Place) -> bool:
        """Always."""
        return True

    def ask(self, place: Place, declaration: OrderedLockDeclaration) -> Ask[Turn | NotYet]:
        """For the turn."""
        return ordered_lines().entering(
            place.text_of(declaration.key),
            identity(place.requester),
            place.requester,
            poison_timeout=declaration.poison_pill_timeout,
            ttl=declaration.ttl,
            strict=declaration.strict,
        )

    def acquire(
        self,
        place: Place,
        declaration: OrderedLockDeclaration,
        *,
        patience: float | None,
        answer: Turn | NotYet | None = None,
    ) -> Hold:
        """Have the turn, or park, or fail out of turn."""
        key = place.text_of(declaration.key)
        who = identity(place.requester)
        if answer is None:
            answer = ordered_lines().send(self.ask(place, declaration))
        if isinstance(answer, NotYet):
            raise self._not_yet(place, declaration, key, who, answer)
        hold = Hold(self, answer.taken, place, declaration)
        if declaration.strict and answer.failed:
            self._pass_by(hold, answer)
        ordered_lines().watch(answer.taken, hold.lost.add)
        kind = EventKind.ADOPTED if answer.adopted else EventKind.ACQUIRED
        place.emit(kind, step=place.step, primitive=self.primitive, key=key, position=answer.position)
        return hold

    def _pass_by(self, hold: Hold, turn: Turn) -> None:
        wake(ordered_lines().complete(hold.taken, failed=False))
        hold.place.emit(
            EventKind.REFUSED,
            step=hold.place.step,
            primitive=self.primitive,
            key=turn.key,
            position=turn.position,
            failed_position=turn.failed,
        )
        raise Decided(Skipped(reason=CHAIN_FAILED))

    def _not_yet(
        self, place: Place, declaration: OrderedLockDeclaration, key: str, who: str, answer: NotYet
    ) -> BaseException:
        head = ".".join(part for part in (answer.head_reactor, answer.head_step) if part)
        holder = f"{head} of execution {answer.head_execution}" if head else f"execution {answer.head_execution}"
        place.emit(
            EventKind.REFUSED,
            step=place.step,
            primitive=self.primitive,
            key=key,
            holder=holder,
            held_by=holder,
            position=answer.position,
            place=answer.ahead,
        )
        if place.parks:
            return Parked(_park(place, key, holder, answer))
        wake(ordered_lines().leave(key, who, ttl=declaration.ttl))
        return OutOfTurn(
            f"{place.describe()} is out of turn in the line {key!r}: {answer.ahead} before it, {holder} first",
            reactor=place.reactor,
            step=place.step,
            primitive=self.primitive,
            key=key,
            holder=holder,
        )

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """Pass on when the work has ended; keep the position when it will come again."""
        lines = ordered_lines()
        if ending in PASSED:
            return [lines.completing(hold.taken, failed=ending is Ending.FAILED)]
        if ending is Ending.REFUSED and not hold.place.parks:
            return [lines.returning(hold.taken)]
        return [lines.pausing(hold.taken, hold.place.notes.get(COMES_AGAIN_IN, 0.0))]

    def release(self, hold: Hold, ending: Ending) -> None:
        """The same by itself."""
        try:
            for ask in self.giving(hold, ending):
                woken: tuple[str, ...] = ordered_lines().send(ask)
                wake(woken)
        except CoordinationUnavailable as error:
            logger.warning("event=reactor_coord.turn_not_passed_on key=%s error=%s", hold.taken.keys[0].key, error)

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep the turn for the parked tree."""
        ordered_lines().pause(hold.taken, horizon)

    def check(self, hold: Hold) -> None:
        """Ask Redis whether it is still its own: a process that stood still may end its body before its keeper tells it."""
        asked_at = time.monotonic()
        hold.lost |= ordered_lines().renew(hold.taken)
        hold.seen_at = asked_at

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Give the position back."""
        for key in keys:
            wake(ordered_lines().leave(key, identity(requester), ttl=86400.0))

    def rollback_wait(self, declaration: OrderedLockDeclaration) -> float | None:
        """Never gates cleanup."""
        return None


def _park(place: Place, key: str, holder: str, answer: NotYet) -> Park:
    """Woken by the one before it; the look is the net, and no ceiling counts it: the poison pill bounds the wait."""
    previous = place.previous or {}
    now = clock.present()
    looks = int(previous.get("stuck", 0)) + 1
    waiting_on = {
        "path": place.path,
        "reactor": place.reactor,
        "step": place.step,
        "primitive": "ordered_lock",
        "key": key,
        "keys": [key],
        "holder": holder,
        "holder_execution": answer.head_execution,
        "place": answer.ahead,
        "waiting": answer.ahead,
        "since": previous.get("since", now.isoformat()),
        "attempts": int(previous.get("attempts", 0)) + 1,
        "stuck": looks,
        "fence": answer.position,
        "position": answer.position,
    }
    resume_at = now + timedelta(seconds=snooze_policy().delay(looks, random.random(), place=answer.ahead))
    return Park(ParkKind.CONTENTION, resume_at, place.step, waiting_on)
