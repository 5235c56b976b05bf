"""What a refusal means: a park in a worker, an error in process, a skip where the declaration says so. In one place.

Redis says who holds and where one stands; the row says since when an execution waits and how often nothing moved. Both
meet here, for every primitive with holders and a line.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from reactor_coord import conf, probes
from reactor_coord.coordination import HeldKey, Holder, Refused
from reactor_coord.coordination.inspect import HoldView
from reactor_coord.engine.delays import SnoozePolicy, Standing, look_in
from reactor_coord.engine.events import HoldAcquired, HoldAdopted, HoldGranted, HoldRefused
from reactor_coord.engine.states import ParkKind
from reactor_coord.errors import ContentionCeilingReached, ContentionError
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.gates import Gate, Place
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

WAITS = frozenset({"park", "wait"})
"""The policies under which a process blocks for `wait` seconds."""

DEAD_WORKER = "its dead worker"
"""Who is in the way of an execution that was taken up again, until the lease of the one that died is over."""

EARLY_SECONDS = 0.5
"""A look this long before its time was brought about by somebody else's message."""


def joins_the_line(place: Place, declaration: Any, patience: float | None) -> bool:
    """Whether a refusal here will park: it then joins the line in the same step in which it is refused."""
    return patience is None and place.parks and declaration.on_contention == "park"


def seconds_to_wait(place: Place, declaration: Any, patience: float | None) -> float:
    """How long to block for it: a rollback's patience, the declared wait in process or by policy, else not at all."""
    if patience is not None:
        return patience
    return float(declaration.wait) if declaration.on_contention in WAITS else 0.0


def refuse(
    gate: Gate,
    place: Place,
    declaration: Any,
    keys: Sequence[str],
    refused: Refused,
    error: type[ContentionError],
    *,
    parks: bool,
    for_rollback: bool,
) -> NoReturn:
    """Tell of the refusal, then park, skip or fail. In a line that is full nobody parks."""
    held_by = describe_holders(refused, place.requester.owner)
    place.emit(
        HoldRefused(
            step=place.step,
            primitive=gate.primitive,
            key=refused.key,
            held_by=held_by,
            place=refused.place,
            waiting=refused.waiting,
        )
    )
    probes.reached("refused.after")
    if refused.is_full:
        raise _line_is_full(gate, place, declaration, refused, error)
    if parks:
        raise Parked(_park(gate, place, declaration, keys, refused))
    if declaration.on_contention == "skip" and not for_rollback:
        raise Decided(Skipped(reason=f"contention: {refused.key} is held by {held_by}"))
    raise error(
        f"{place.describe()} could not have the {gate.primitive} {refused.key!r}: it is held by {held_by}. "
        f"{_remedy(place, declaration, for_rollback=for_rollback)}",
        reactor=place.reactor,
        step=place.step,
        primitive=gate.primitive,
        key=refused.key,
        holder=held_by,
    )


def _remedy(place: Place, declaration: Any, *, for_rollback: bool) -> str:
    """What may be done about a refusal, by what was tried."""
    if for_rollback:
        return f"Undo it again when it is free, or raise rollback_wait={declaration.rollback_wait:g}"
    if not place.parks:
        waits = declaration.on_contention in WAITS
        longer = f"raise wait={declaration.wait:g}" if waits else "declare on_contention='wait' with wait="
        return f"Try again later, {longer}, or enqueue its reactor: in a worker it steps aside until the key is free"
    longer = f"raise wait={declaration.wait:g}, " if declaration.on_contention == "wait" else ""
    return f"Retry the execution when it is free, {longer}or declare on_contention='park', which waits in line"


def _park(gate: Gate, place: Place, declaration: Any, keys: Sequence[str], refused: Refused) -> Park:
    now = clock.present()
    standing = _standing(place, refused.fence, refused.place, now)
    wait = place.wait_for(gate.primitive, refused.key, keys, now)
    since, attempts = wait.since or now, wait.attempts - 1
    max_wait = getattr(declaration, "max_wait", None)
    give_up_at = since + timedelta(seconds=max_wait) if max_wait is not None else None
    policy = snooze_policy()
    if policy.is_exhausted(standing.stuck) or (give_up_at is not None and now >= give_up_at):
        gate.leave(keys, place.requester)
        raise _ceiling(place, gate.primitive, refused, attempts, (now - since).total_seconds())
    delay = policy.delay(standing.stuck, random.random(), place=refused.place)
    resume_at = now + timedelta(seconds=look_in(delay, _ends_in(place, refused.holder), refused.place))
    if give_up_at is not None:
        resume_at = min(resume_at, give_up_at)
    wait = replace(
        wait,
        holder=describe_holders(refused, place.requester.owner),
        holder_execution=refused.holder.execution if refused.holder and not _is_own(place, refused.holder) else "",
        place=refused.place,
        waiting=refused.waiting,
        stuck=standing.stuck,
        fence=standing.fence,
    )
    return Park(ParkKind.CONTENTION, resume_at, place.step, wait)


def _is_own(place: Place, holder: Holder) -> bool:
    """Whether an earlier claim of this very tree is in the way."""
    return holder.owner == place.requester.owner


def _ends_in(place: Place, holder: Holder | None) -> float | None:
    """Seconds until a hold ends that nothing prolongs; what a dead worker of the tree left counts as such."""
    if holder is None:
        return None
    return holder.remaining if _is_own(place, holder) else holder.ends_in


def snooze_policy() -> SnoozePolicy:
    """The `SNOOZE_*` settings."""
    known = conf.settings()
    return SnoozePolicy(known.SNOOZE_BASE_DELAY, known.SNOOZE_MAX_DELAY, known.SNOOZE_JITTER, known.SNOOZE_MAX_ATTEMPTS)


def _line_is_full(
    gate: Gate, place: Place, declaration: Any, refused: Refused, error: type[ContentionError]
) -> ContentionError:
    held_by = describe_holders(refused, place.requester.owner)
    return error(
        f"{place.describe()} may not wait for the {gate.primitive} {refused.key!r}: {refused.waiting} stand in line already, "
        f"and max_waiting={declaration.max_waiting} allows no more; it is held by {held_by}. Come again later, or raise "
        f"max_waiting",
        reactor=place.reactor,
        step=place.step,
        primitive=gate.primitive,
        key=refused.key,
        holder=held_by,
        waiting=refused.waiting,
    )


def describe_holders(refused: Refused, owner: str = "") -> str:
    """Name who is in the way of this owner: the holder, or one of a semaphore's and how many more.

    What the owner itself holds under another claim was left by a worker that died, or is taken for dead.
    """
    is_own = refused.holder is not None and refused.holder.owner == owner
    one, more = DEAD_WORKER if is_own else describe_holder(refused.holder), refused.in_use - 1
    return f"{one} and {more} more" if refused.holder is not None and more > 0 else one


def describe_holder(holder: Holder | HoldView | None) -> str:
    """Name a holder for people: where it is, and of which execution."""
    if holder is None:
        return "nobody any more"
    where = ".".join(part for part in (holder.reactor, holder.step) if part)
    who = f"execution {holder.execution}" if holder.execution else f"owner {holder.owner}"
    return f"{where} of {who}" if where else who


def _standing(place: Place, fence: int, position: int, now: datetime) -> Standing:
    previous = place.previous
    if previous is None:
        return Standing(fence, position, 1)
    # Not the row's `resume_at`: the sweep that sends a look's message moves that on to the next.
    early = previous.until is not None and now < previous.until - timedelta(seconds=EARLY_SECONDS)
    return Standing(previous.fence, previous.place, previous.stuck).next(fence, position, early=early)


def _ceiling(
    place: Place, primitive: str, refused: Refused, attempts: int, waited_seconds: float
) -> ContentionCeilingReached:
    holder = describe_holders(refused, place.requester.owner)
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


def tell_taken(place: Place, primitive: str, key: HeldKey) -> None:
    """Tell how a key came: adopted after a park, granted by a release, free, or held already."""
    step, text, fence = place.step, key.key, key.fence
    if key.how == "parked":
        return place.emit(HoldAdopted(step=step, primitive=primitive, key=text, fence=fence))
    if key.how == "granted" and key.granted_at is not None:
        granted = HoldGranted(step=step, primitive=primitive, key=text, fence=fence, released_by=key.released_by)
        place.emit(granted, at=datetime.fromtimestamp(key.granted_at, tz=UTC))
    place.emit(HoldAcquired(step=step, primitive=primitive, key=text, fence=fence, how=key.how))
