"""A reactor with something of everything, for the tests of the assertions: nested, mapped, beside, asked, late to fail."""

from __future__ import annotations

from typing import Any

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from tests.live.reactors import BodyFailed


class Work(Step):
    """Fails at the step, or the element, that it is told; its cleanup fails where it is told as well."""

    fail_at = Input(str, default="")
    fails = Input(int, default=1000)
    undo_fail_at = Input(str, default="")
    number = Input(int, default=-1)

    def run(self) -> str:
        if self._is(self.fail_at) and self.context.attempt <= self.fails:
            raise BodyFailed(f"{self.context.step} was told to fail")
        return self.context.step

    def compensate(self, error: Any) -> None:
        self._clean_up()

    def undo(self, result: Any) -> None:
        self._clean_up()

    def _clean_up(self) -> None:
        if self._is(self.undo_fail_at):
            raise BodyFailed(f"the cleanup of {self.context.step} was told to fail")

    def _is(self, told: str) -> bool:
        own = self.context.step if self.number < 0 else f"{self.context.step}[{self.number}]"
        return told == own


class Told(Reactor):
    """What each of them is told."""

    fail_at = Input(str, default="")
    fails = Input(int, default=1000)
    undo_fail_at = Input(str, default="")


@with_lock("{key}", ttl=5)
class LockedWork(Work):
    key = Input(str)


class Payment(Told):
    """audit, charge (locked)."""

    key = Input(str)
    audit = step(Work)
    charge = step(LockedWork, after=audit, retry=Retry(max_attempts=3, backoff="fixed", base_delay=0.01))


class Line(Told):
    """pick, pack: an element of a map."""

    number = Input(int)
    pick = step(Work, number=number)
    pack = step(Work, number=number, after=pick)


class Order(Told):
    """A composed payment, two maps, an unwanted step, and one that may fail late."""

    key = Input(str, default="acct:1")
    payment = compose(Payment)
    lines = map_each(Line, over=[0, 1, 2], number=element(), after=payment, concurrency=1)
    labels = map_each(Work, over=[0, 1, 2], number=element(), after=lines, concurrency=1)
    unwanted = step(Work, where=lambda fail_at: False, after=labels)
    ship = step(Work, after=unwanted)


class Beside(Told):
    """Work on the side, and a step that reads it."""

    key = Input(str, default="acct:1")
    track = async_step(LockedWork)
    meanwhile = step(Work)
    last = step(Work, after=(track, meanwhile))


class Asking(Told):
    """A pause for an answer in a child."""

    key = Input(str, default="order-7")

    class Review(Told):
        """One question."""

        key = Input(str)
        answer = interrupt(correlation_id=key, payload={"approved": bool})

    before = step(Work)
    review = compose(Review, after=before)


class Deciding(Told):
    """Skips, or halts, as it is told."""

    verdict = Input(str)

    @step(verdict=verdict)
    def decide(verdict: str, context: Any) -> None:
        getattr(context, verdict)(reason="enough for today")

    behind = step(Work, after=decide)


class Strict(Told):
    """A step with inputs that may be wrong."""

    amount = Input(int)
    card = Input(str)

    class Charge(Step):
        amount = Input(int, gt=0)
        card = Input(str, min_length=4)

        def run(self) -> None:
            """Nothing."""

    charge = step(Charge)


@with_semaphore("{key}:pool", limit=3, ttl=5)
@with_rate_limit("{key}:rate", limits={"hour": 5, "day": 50})
@with_period("{key}:once", every="month")
@with_ordered_lock("{key}:line")
class FamilyWork(Work):
    key = Input(str)


class Family(Told):
    """One step under the other four."""

    key = Input(str, default="k")
    work = step(FamilyWork)
