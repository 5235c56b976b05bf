"""Hold a key as another owner would, so that the code under test meets contention.

One function for all five primitives: a lock, slots of a semaphore, a window of a rate limit that is full, a bucket of a
period that is marked, a turn in an ordered line. The owner is no execution; what it has is given back at the end of the block.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.utils import timezone as zones

from reactor_coord.coordination import NotYet, Refused, Requester, Taken, locks, ordered_lines, periods, semaphores
from reactor_coord.coordination.period import Bucket
from reactor_coord.declare.coordination import OrderedLockDeclaration, PeriodDeclaration, RateLimitDeclaration
from reactor_coord.declare.decorators import with_ordered_lock, with_period, with_rate_limit
from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.runtime.contention import describe_holders
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.rate_limiting import windows_of
from reactor_coord.testing.windows import FullWindow

LASTS_SECONDS = 1.0
"""A full window and a marked bucket stand for so long at least, or for a quarter of a shorter one, before the clock ends them."""


@dataclass(slots=True)
class Held:
    """What another owner has. `position` is that of a turn, `fence` the fencing token of a lock or a slot; else both are 0."""

    key: str
    primitive: str
    owner: str
    fence: int = 0
    position: int = 0
    is_released: bool = field(default=False)
    _give: Callable[[bool], None] = field(default=lambda failed: None, repr=False)

    def release(self) -> None:
        """Give it back now, and wake the execution that is next in line, as the end of a step would. Idempotent."""
        self._end(failed=False)

    def fail(self) -> None:
        """End a turn as a failed position: in a strict line the later positions skip. Any other hold is given back."""
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        if not self.is_released:
            self.is_released = True
            self._give(failed)


@contextmanager
def hold(key: str, primitive: str = "lock", **options: Any) -> Iterator[Held]:
    """Hold `key` inside the block, as another owner.

    Args:
        key: The key as it is computed, such as `"acct:1"`.
        primitive: Which kind of hold, by the name that `Step.coordination` has.
        options: By primitive. Seconds throughout; `wait` is how long to stand in line for it.

            - `"lock"`: `ttl=60`, `wait=0`.
            - `"semaphore"`: `limit=1`, `slots=1` (how many of them), `ttl=60`, `wait=0`.
            - `"rate_limit"`: as `with_rate_limit` has them (`limit=2, period="minute"`, or `limits={...}`; `algorithm=`); without
              them the limit of the settings that `key` names. Every start that is left is used.
            - `"period"`: as `with_period` has them, `every="day"`, `timezone=None`. The present bucket is marked.
            - `"ordered_lock"`: `ttl=60`. Its position is passed over after so long. `Held.fail()` ends it as failed.

    Nothing is renewed: after `ttl` seconds it lapses, as the hold of a dead process does.

    Raises:
        AssertionError: Another owner has it; the message names that owner.
        ValueError: There is no such primitive.
        TypeError: The primitive has no such option.
    """
    take = _TAKERS.get(primitive)
    if take is None:
        raise ValueError(f"testing.hold knows no primitive {primitive!r}.{did_you_mean(primitive, _TAKERS)}")
    _refuse_unknown(primitive, take, options)
    held = take(
        key,
        Requester(owner=f"testing-{uuid.uuid4().hex}", claim=uuid.uuid4().hex, reactor="testing.hold", renews=False),
        **options,
    )
    try:
        yield held
    finally:
        held.release()


def _refuse_unknown(primitive: str, take: Callable[..., Held], options: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(take).parameters if name not in {"key", "me"}]
    for name in options:
        if name not in known:
            raise TypeError(f"testing.hold of a {primitive} has no option {name!r}.{did_you_mean(name, known)}")


def _take_lock(key: str, me: Requester, *, ttl: float = 60.0, wait: float = 0.0) -> Held:
    if wait:
        answer = locks().wait([key], me, ttl=ttl, timeout=wait)
    else:
        answer = locks().take([key], me, ttl=ttl, join=False)
    taken = _had(answer)
    return Held(key, "lock", me.owner, taken.keys[0].fence, _give=lambda failed: wake(locks().give(taken)))


def _take_slots(
    key: str, me: Requester, *, limit: int = 1, slots: int = 1, ttl: float = 60.0, wait: float = 0.0
) -> Held:
    taken: list[Taken] = []

    def give(failed: bool) -> None:
        while taken:
            wake(semaphores().give(taken.pop()))

    try:
        for number in range(slots):
            who = me if not number else replace(me, owner=f"{me.owner}-{number + 1}")
            if wait:
                answer = semaphores().wait(key, who, limit=limit, ttl=ttl, timeout=wait)
            else:
                answer = semaphores().take(key, who, limit=limit, ttl=ttl, join=False)
            taken.append(_had(answer))
    except AssertionError:
        give(False)
        raise
    return Held(key, "semaphore", me.owner, taken[0].keys[0].fence, _give=give)


def _had(answer: Taken | Refused) -> Taken:
    if isinstance(answer, Refused):
        what = f"{answer.primitive} {answer.key!r}"
        raise AssertionError(f"testing.hold could not take the {what}: it is held by {describe_holders(answer)}")
    return answer


def _fill_window(
    key: str,
    me: Requester,
    *,
    limit: int | None = None,
    period: Any = None,
    limits: Mapping[Any, int] | None = None,
    algorithm: str | None = None,
) -> Held:
    if limit is None and period is None and limits is None:
        declaration = with_rate_limit(name=key.partition(":")[0]).declaration
    else:
        declaration = with_rate_limit("key", limit=limit, period=period, limits=limits, algorithm=algorithm).declaration
    assert isinstance(declaration, RateLimitDeclaration)
    windows, known_algorithm = windows_of(declaration, "testing.hold")
    window = FullWindow(key, me.owner, windows, known_algorithm)
    shortest = min(each.seconds for each in windows)
    while (left := window.fill()) < _at_least(shortest):
        time.sleep(left)
    return Held(key, "rate_limit", me.owner, _give=lambda failed: window.give_back())


def _mark_bucket(key: str, me: Requester, *, every: Any = "day", timezone: Any = None) -> Held:
    declaration = with_period("key", every=every, timezone=timezone).declaration
    assert isinstance(declaration, PeriodDeclaration)
    bucket = _bucket(key, declaration)
    periods().mark(key, bucket, me.owner)
    return Held(key, "period", me.owner, _give=lambda failed: _unmark(key, bucket, me))


def _bucket(key: str, declaration: PeriodDeclaration) -> Bucket:
    """The present bucket, free; the next one if the present one is about to end."""
    zone = declaration.timezone or zones.get_default_timezone_name()
    every = declaration.every
    wanted = timedelta(seconds=LASTS_SECONDS if isinstance(every, str) else _at_least(every))
    while True:
        bucket, mark = periods().look(key, every, zone)
        left = bucket.ends_at - zones.now()
        if left >= wanted:
            break
        time.sleep(max(0.01, left.total_seconds()))
    if mark is not None:
        raise AssertionError(
            f"testing.hold could not mark the bucket {bucket.name} of the period {key!r}: it is marked by {mark.by}"
        )
    return bucket


def _unmark(key: str, bucket: Bucket, me: Requester) -> None:
    periods().free(key, bucket.name, me.owner)


def _at_least(seconds: float) -> float:
    return min(LASTS_SECONDS, seconds / 4)


def _take_turn(key: str, me: Requester, *, ttl: float = 60.0) -> Held:
    declaration = with_ordered_lock("key", poison_pill_timeout=ttl).declaration
    assert isinstance(declaration, OrderedLockDeclaration)
    answer = ordered_lines().enter(key, me.owner, me, poison_timeout=ttl, ttl=declaration.ttl)
    if isinstance(answer, NotYet):
        wake(ordered_lines().leave(key, me.owner, ttl=declaration.ttl))
        where = ".".join(part for part in (answer.head_reactor, answer.head_step) if part) or "another owner"
        raise AssertionError(
            f"testing.hold could not have the turn in the ordered line {key!r}: {answer.ahead} before it, first is {where}"
            + (f" of execution {answer.head_execution}" if answer.head_execution else "")
        )
    taken = answer.taken

    def give(failed: bool) -> None:
        wake(ordered_lines().complete(taken, failed=failed))

    return Held(key, "ordered_lock", me.owner, position=answer.position, _give=give)


_TAKERS: Mapping[str, Callable[..., Held]] = {
    "lock": _take_lock,
    "semaphore": _take_slots,
    "rate_limit": _fill_window,
    "period": _mark_bucket,
    "ordered_lock": _take_turn,
}
"""How each primitive is had: a new primitive is a new function and a row."""
