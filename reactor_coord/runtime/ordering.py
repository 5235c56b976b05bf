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
from reactor_coord.coordination.ordered import FAILED, PASSED, SUCCEEDED
from reactor_coord.declare.coordination import OrderedLockDeclaration
from reactor_coord.engine.delays import look_in
from reactor_coord.engine.events import HoldAcquired, HoldAdopted, HoldRefused
from reactor_coord.engine.states import ParkKind
from reactor_coord.errors import NO_ANSWER, OutOfTurn
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime import losses
from reactor_coord.runtime.contention import DEAD_WORKER, snooze_policy
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.gates import COMES_AGAIN_IN, Ending, Hold, Place, identity
from reactor_coord.runtime.lease import lease_ttl
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

logger = logging.getLogger("reactor_coord")

CHAIN_FAILED = "ordered_lock_chain_failed"
HOW = {Ending.SUCCEEDED: SUCCEEDED, Ending.SKIPPED: PASSED, Ending.HALTED: PASSED, Ending.FAILED: FAILED}
"""How a position passes whose work has ended; under any other ending it is kept."""


def reserve(place: Place) -> None:
    """Have a position before the work arrives: a reactor's is given when it is enqueued."""
    declaration = place.declarations["ordered_lock"]
    assert isinstance(declaration, OrderedLockDeclaration)
    ordered_lines().send(_entering(place, declaration, replace(place.requester, claim="")))


def _entering(place: Place, declaration: OrderedLockDeclaration, requester: Requester) -> Ask[Turn | NotYet]:
    """A turn is a worker's for as long as its execution is: its successor finds the claim of a dead one over."""
    return ordered_lines().entering(
        place.text_of(declaration.key),
        identity(requester),
        requester,
        poison_timeout=declaration.poison_pill_timeout,
        ttl=declaration.ttl,
        strict=declaration.strict,
        lease=lease_ttl(),
        family=place.family or requester.owner,
        retry_of=place.retry_of,
    )


class OrderedGate:
    """One's turn in a line."""

    primitive = "ordered_lock"
    once = False
    spends = False

    def applies(self, place: Place) -> bool:
        """Always."""
        return True

    def ask(self, place: Place, declaration: OrderedLockDeclaration) -> Ask[Turn | NotYet]:
        """For the turn."""
        return _entering(place, declaration, place.requester)

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
        ordered_lines().watch(answer.taken, losses.noticer(hold))
        had = HoldAdopted if answer.adopted else HoldAcquired
        place.emit(had(step=place.step, primitive=self.primitive, key=key, position=answer.position))
        return hold

    def _pass_by(self, hold: Hold, turn: Turn) -> None:
        woken: tuple[str, ...] = ordered_lines().send(ordered_lines().completing(hold.taken, PASSED))
        wake(woken)
        hold.place.emit(
            HoldRefused(
                step=hold.place.step,
                primitive=self.primitive,
                key=turn.key,
                position=turn.position,
                failed_position=turn.failed,
            )
        )
        raise Decided(Skipped(reason=CHAIN_FAILED))

    def _not_yet(
        self, place: Place, declaration: OrderedLockDeclaration, key: str, who: str, answer: NotYet
    ) -> BaseException:
        holder = _head(answer)
        place.emit(
            HoldRefused(
                step=place.step,
                primitive=self.primitive,
                key=key,
                held_by=holder,
                position=answer.position,
                place=answer.ahead,
            )
        )
        if place.parks:
            return Parked(_park(place, key, holder, answer))
        wake(ordered_lines().leave(key, who, ttl=declaration.ttl))
        before = f"{answer.ahead} before it, {holder} first" if answer.ahead else f"{holder} still has it"
        return OutOfTurn(
            f"{place.describe()} is out of turn in the line {key!r}: {before}. Its position "
            f"is given back. Try again when those have passed, or enqueue it: in a worker it waits for its turn",
            reactor=place.reactor,
            step=place.step,
            primitive=self.primitive,
            key=key,
            holder=holder,
        )

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """Pass on when the work has ended; keep the position when it will come again."""
        lines = ordered_lines()
        if ending in HOW:
            return [lines.completing(hold.taken, HOW[ending], chain_ttl=_chain_ttl(hold, ending))]
        if ending is Ending.REFUSED and not hold.place.parks:
            return [lines.returning(hold.taken)]
        return [lines.pausing(hold.taken, hold.place.notes.get(COMES_AGAIN_IN, 0.0))]

    def release(self, hold: Hold, ending: Ending) -> None:
        """The same by itself."""
        try:
            for ask in self.giving(hold, ending):
                woken: tuple[str, ...] = ordered_lines().send(ask)
                wake(woken)
        except NO_ANSWER as error:
            logger.warning("event=reactor_coord.turn_not_passed_on key=%s error=%s", hold.taken.keys[0].key, error)

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep the turn for the parked tree."""
        ordered_lines().pause(hold.taken, horizon)

    def check(self, hold: Hold) -> None:
        """Ask Redis whether it is still its own: a process that stood still may end its body before its keeper tells it.

        When Redis does not answer, what the keeper last heard counts.
        """
        asked_at = time.monotonic()
        try:
            hold.lost |= ordered_lines().renew(hold.taken)
        except NO_ANSWER:
            hold.lost |= ordered_lines().lapsed(hold.taken)
        else:
            hold.seen_at = asked_at

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Give the position back."""
        for key in keys:
            wake(ordered_lines().leave(key, identity(requester), ttl=86400.0))

    def take_back(self, place: Place, declaration: OrderedLockDeclaration) -> None:
        """Its position has passed: nothing of a success is left."""

    def rollback_wait(self, declaration: OrderedLockDeclaration) -> float | None:
        """Never gates cleanup."""
        return None


def _chain_ttl(hold: Hold, ending: Ending) -> float:
    """Seconds for which a failure stops those who come later; it is for people to repair meanwhile, so it is logged."""
    declaration: OrderedLockDeclaration = hold.declaration
    if ending is not Ending.FAILED or not declaration.chain_ttl:
        return 0.0
    logger.warning(
        "event=reactor_coord.chain_failed reactor=%s step=%s key=%s execution=%s seconds=%g",
        hold.place.reactor,
        hold.place.step,
        hold.taken.keys[0].key,
        hold.place.requester.execution,
        declaration.chain_ttl,
    )
    return declaration.chain_ttl


def _head(answer: NotYet) -> str:
    if not answer.ahead:
        return DEAD_WORKER
    head = ".".join(part for part in (answer.head_reactor, answer.head_step) if part)
    return f"{head} of execution {answer.head_execution}" if head else f"execution {answer.head_execution}"


def _park(place: Place, key: str, holder: str, answer: NotYet) -> Park:
    """Woken by the one before it; the look is the net, and no ceiling counts it: the poison pill bounds the wait."""
    now = clock.present()
    looks = (place.previous.stuck if place.previous is not None else 0) + 1
    wait = replace(
        place.wait_for(OrderedGate.primitive, key, [key], now),
        holder=holder,
        holder_execution=answer.head_execution if answer.ahead else "",
        place=answer.ahead,
        waiting=answer.ahead,
        stuck=looks,
        fence=answer.position,
        position=answer.position,
    )
    delay = snooze_policy().delay(looks, random.random(), place=answer.ahead)
    resume_at = now + timedelta(seconds=look_in(delay, answer.ends_in, answer.ahead))
    return Park(ParkKind.CONTENTION, resume_at, place.step, wait)
