"""The lock as a gate: keys from arguments, refusals into parks or errors, parks and grants into trace rows.

Redis knows who holds; the row knows since when an execution waits and how often nothing moved. Both meet here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from django.utils import timezone

from reactor_coord import conf, probes
from reactor_coord.coordination import HeldKey, Holder, Refused, Requester, Taken, locks
from reactor_coord.declare.coordination import LockDeclaration
from reactor_coord.engine.delays import SnoozePolicy, Standing
from reactor_coord.engine.states import EventKind, ParkKind
from reactor_coord.errors import ContentionCeilingReached, LockContended
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.gates import Hold, Place
from reactor_coord.runtime.parking import Park, Parked

EARLY_SECONDS = 0.5
"""A look this long before its time was brought about by somebody else's message."""


class LockGate:
    """`with_lock` around a place."""

    primitive = "lock"

    def acquire(self, place: Place, declaration: LockDeclaration, *, patience: float | None) -> Hold:
        """Take all keys at once; see `Gate`."""
        keys = [key.compute(place.arguments, place.redacted) for key in declaration.keys]
        probes.reached("step.before_take")
        answer = self._ask(place, declaration, keys, patience)
        if isinstance(answer, Refused):
            wake(answer.wakes)
            self._refused(place, declaration, keys, answer, parks=patience is None)
        hold = Hold(self, answer, place, declaration)
        locks().watch(answer, hold.lost.add, prolong=declaration.auto_extend)
        for key in answer.keys:
            _tell_taken(place, key)
        probes.reached("step.after_take")
        return hold

    def _ask(
        self, place: Place, declaration: LockDeclaration, keys: list[str], patience: float | None
    ) -> Taken | Refused:
        policy = declaration.on_contention
        if patience is None and (policy in {"fail", "skip"} or (policy == "park" and place.parks)):
            join = policy == "park"
            return locks().take(keys, place.requester, ttl=declaration.ttl, join=join)
        timeout = declaration.wait if patience is None else patience
        return locks().wait(keys, place.requester, ttl=declaration.ttl, timeout=timeout)

    def release(self, hold: Hold) -> None:
        """Give the keys back and wake the heads of their lines."""
        probes.reached("release.before")
        wake(locks().give(hold.taken))
        probes.reached("release.after")

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep the keys for the parked tree, unrenewed, until the horizon."""
        locks().park(hold.taken, horizon)

    def check(self, hold: Hold) -> None:
        """Ask Redis whether the keys still stand."""
        asked_at = time.monotonic()
        hold.lost |= locks().renew(hold.taken) if hold.declaration.auto_extend else locks().lost(hold.taken)
        hold.seen_at = asked_at

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Leave the lines, and let go of what is parked if asked; who gets a grant by it is woken."""
        wake(locks().leave(list(keys), requester, parked=parked))

    def rollback_wait(self, declaration: LockDeclaration) -> float | None:
        """The declared one, or the ttl."""
        return declaration.ttl if declaration.rollback_wait is None else declaration.rollback_wait

    def _refused(
        self, place: Place, declaration: LockDeclaration, keys: list[str], refused: Refused, *, parks: bool
    ) -> NoReturn:
        place.emit(
            EventKind.REFUSED,
            step=place.step,
            primitive=self.primitive,
            key=refused.key,
            holder=describe_holder(refused.holder),
            held_by=describe_holder(refused.holder),
            place=refused.place,
            waiting=refused.waiting,
        )
        probes.reached("refused.after")
        policy = declaration.on_contention
        if parks and policy == "park" and place.parks:
            raise Parked(self._park(place, declaration, keys, refused))
        if parks and policy == "skip":
            raise Decided(Skipped(reason=f"contention: {refused.key} is held by {describe_holder(refused.holder)}"))
        raise LockContended(
            f"{place.describe()} could not have the lock {refused.key!r}: it is held by {describe_holder(refused.holder)}",
            reactor=place.reactor,
            step=place.step,
            primitive=self.primitive,
            key=refused.key,
            holder=describe_holder(refused.holder),
        )

    def _park(self, place: Place, declaration: LockDeclaration, keys: list[str], refused: Refused) -> Park:
        now = timezone.now()
        previous = place.previous or {}
        fence = refused.holder.fence if refused.holder else 0
        standing = _standing(place, fence, refused.place, now)
        since = datetime.fromisoformat(previous["since"]) if previous else now
        attempts = int(previous.get("attempts", 0))
        give_up_at = since + timedelta(seconds=declaration.max_wait) if declaration.max_wait is not None else None
        policy = snooze_policy()
        if policy.is_exhausted(standing.stuck) or (give_up_at is not None and now >= give_up_at):
            self.leave(keys, place.requester)
            raise _ceiling(place, self.primitive, refused, attempts, (now - since).total_seconds())
        resume_at = now + timedelta(seconds=policy.delay(standing.stuck, random.random()))
        if give_up_at is not None:
            resume_at = min(resume_at, give_up_at)
        waiting_on = {
            "path": place.path,
            "reactor": place.reactor,
            "step": place.step,
            "primitive": self.primitive,
            "key": refused.key,
            "keys": keys,
            "holder": describe_holder(refused.holder),
            "holder_execution": refused.holder.execution if refused.holder else "",
            "place": refused.place,
            "waiting": refused.waiting,
            "since": since.isoformat(),
            "attempts": attempts + 1,
            "stuck": standing.stuck,
            "fence": standing.fence,
        }
        return Park(ParkKind.CONTENTION, resume_at, place.step, waiting_on)


def snooze_policy() -> SnoozePolicy:
    """The `SNOOZE_*` settings."""
    known = conf.settings()
    return SnoozePolicy(
        known.SNOOZE_BASE_DELAY, known.SNOOZE_MAX_DELAY, known.SNOOZE_JITTER, known.SNOOZE_MAX_ATTEMPTS
    )


def describe_holder(holder: Holder | None) -> str:
    """Name a holder for people: where it is, and of which execution."""
    if holder is None:
        return "nobody any more"
    where = ".".join(part for part in (holder.reactor, holder.step) if part)
    who = f"execution {holder.execution}" if holder.execution else f"owner {holder.owner}"
    return f"{where} of {who}" if where else who


def _standing(place: Place, fence: int, position: int, now: datetime) -> Standing:
    previous = place.previous
    if not previous:
        return Standing(fence, position, 1)
    early = place.due is not None and now < place.due - timedelta(seconds=EARLY_SECONDS)
    before = Standing(int(previous["fence"]), int(previous["place"]), int(previous["stuck"]))
    return before.next(fence, position, early=early)


def _ceiling(
    place: Place, primitive: str, refused: Refused, attempts: int, waited_seconds: float
) -> ContentionCeilingReached:
    holder = describe_holder(refused.holder)
    return ContentionCeilingReached(
        f"{place.describe()} gave up on contention for the {primitive} {refused.key!r} after {attempts} parks and "
        f"{waited_seconds:.0f} s: it is held by {holder}. Look at the holder, raise SNOOZE_MAX_ATTEMPTS or max_wait, "
        f"and retry",
        reactor=place.reactor,
        step=place.step,
        primitive=primitive,
        key=refused.key,
        holder=holder,
        attempts=attempts,
    )


def _tell_taken(place: Place, key: HeldKey) -> None:
    common = {"step": place.step, "primitive": "lock", "key": key.key}
    if key.how == "parked":
        place.emit(EventKind.ADOPTED, **common, fence=key.fence)
        return
    if key.how == "granted" and key.granted_at is not None:
        at = datetime.fromtimestamp(key.granted_at, tz=UTC)
        place.emit(EventKind.GRANTED, **common, at=at, fence=key.fence, released_by=key.released_by)
    place.emit(EventKind.ACQUIRED, **common, fence=key.fence, how=key.how)
