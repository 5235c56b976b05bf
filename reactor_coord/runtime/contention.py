"""What a refusal means: a park in a worker, an error in process, a skip where the declaration says so. In one place.

Redis says who holds and where one stands; the row says since when an execution waits and how often nothing moved. Both
meet here, for every primitive with holders and a line.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from reactor_coord import conf, probes
from reactor_coord.coordination import HeldKey, Holder, Refused
from reactor_coord.engine.delays import SnoozePolicy, Standing
from reactor_coord.engine.states import EventKind, ParkKind
from reactor_coord.errors import ContentionCeilingReached, ContentionError
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.gates import Gate, Place
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

EARLY_SECONDS = 0.5
"""A look this long before its time was brought about by somebody else's message."""


def joins_the_line(place: Place, declaration: Any, patience: float | None) -> bool:
    """Whether a refusal here will park: it then joins the line in the same step in which it is refused."""
    return patience is None and place.parks and declaration.on_contention == "park"


def seconds_to_wait(place: Place, declaration: Any, patience: float | None) -> float:
    """How long to block for it: a rollback's patience, the declared wait in process or by policy, else not at all."""
    if patience is not None:
        return patience
    return 0.0 if declaration.on_contention in {"fail", "skip"} else float(declaration.wait)


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
    held_by = describe_holders(refused)
    place.emit(
        EventKind.REFUSED,
        step=place.step,
        primitive=gate.primitive,
        key=refused.key,
        holder=held_by,
        held_by=held_by,
        place=refused.place,
        waiting=refused.waiting,
    )
    probes.reached("refused.after")
    if refused.is_full:
        raise _line_is_full(gate, place, declaration, refused, error)
    if parks:
        raise Parked(_park(gate, place, declaration, keys, refused))
    if declaration.on_contention == "skip" and not for_rollback:
        raise Decided(Skipped(reason=f"contention: {refused.key} is held by {held_by}"))
    raise error(
        f"{place.describe()} could not have the {gate.primitive} {refused.key!r}: it is held by {held_by}",
        reactor=place.reactor,
        step=place.step,
        primitive=gate.primitive,
        key=refused.key,
        holder=held_by,
    )


def _park(gate: Gate, place: Place, declaration: Any, keys: Sequence[str], refused: Refused) -> Park:
    now = clock.present()
    previous = place.previous or {}
    standing = _standing(place, refused.fence, refused.place, now)
    since = datetime.fromisoformat(previous["since"]) if previous else now
    attempts = int(previous.get("attempts", 0))
    max_wait = getattr(declaration, "max_wait", None)
    give_up_at = since + timedelta(seconds=max_wait) if max_wait is not None else None
    policy = snooze_policy()
    if policy.is_exhausted(standing.stuck) or (give_up_at is not None and now >= give_up_at):
        gate.leave(keys, place.requester)
        raise _ceiling(place, gate.primitive, refused, attempts, (now - since).total_seconds())
    resume_at = now + timedelta(seconds=policy.delay(standing.stuck, random.random(), place=refused.place))
    if give_up_at is not None:
        resume_at = min(resume_at, give_up_at)
    waiting_on = {
        "path": place.path,
        "reactor": place.reactor,
        "step": place.step,
        "primitive": gate.primitive,
        "key": refused.key,
        "keys": list(keys),
        "holder": describe_holders(refused),
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
    return SnoozePolicy(known.SNOOZE_BASE_DELAY, known.SNOOZE_MAX_DELAY, known.SNOOZE_JITTER, known.SNOOZE_MAX_ATTEMPTS)


def _line_is_full(
    gate: Gate, place: Place, declaration: Any, refused: Refused, error: type[ContentionError]
) -> ContentionError:
    held_by = describe_holders(refused)
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


def describe_holders(refused: Refused) -> str:
    """Name who is in the way: the holder, or one of a semaphore's and how many more."""
    one, more = describe_holder(refused.holder), refused.in_use - 1
    return f"{one} and {more} more" if refused.holder is not None and more > 0 else one


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
    holder = describe_holders(refused)
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
    common = {"step": place.step, "primitive": primitive, "key": key.key}
    if key.how == "parked":
        place.emit(EventKind.ADOPTED, **common, fence=key.fence)
        return
    if key.how == "granted" and key.granted_at is not None:
        at = datetime.fromtimestamp(key.granted_at, tz=UTC)
        place.emit(EventKind.GRANTED, **common, at=at, fence=key.fence, released_by=key.released_by)
    place.emit(EventKind.ACQUIRED, **common, fence=key.fence, how=key.how)
