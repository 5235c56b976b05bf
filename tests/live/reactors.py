"""The reactors that integration and live tests run. What a body does is an input, so that few serve many cases.

Every body, undo and compensation records itself: label `"run charge"`, `"undo charge"`, `"comp charge"` (the step's name), with
notes `name` (which execution, an input of every reactor) and `key`. `sequence(notes="name")` tells executions apart.

Inputs that bodies share: `seconds` (how long), `fail_at` (name of a step that raises), `fails` (on how many attempts; many
by default), `undo_seconds`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import AbstractContextManager
from typing import Any

from reactor_coord import (
    Failure,
    Input,
    Reactor,
    Retry,
    Step,
    compose,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.testing import recorder
from tests.live.models import Posting

TTL = 5


class BodyFailed(Exception):
    """What a body raises when it is told to fail."""


class Work(Step):
    """Records itself, takes `seconds`, and fails when it is the one that shall."""

    name = Input(str, default="")
    seconds = Input(float, default=0.0)
    fail_at = Input(str, default="")
    fails = Input(int, default=1_000_000)
    undo_seconds = Input(float, default=0.0)
    undo_fail_at = Input(str, default="")

    def run(self) -> dict[str, Any]:
        """The body; its value says where it ran."""
        with self._recording("run"):
            time.sleep(self.seconds)
            if self.fail_at == self.context.step and self.context.attempt <= self.fails:
                raise BodyFailed(f"{self.context.step} was told to fail")
        return {"step": self.context.step, "pid": os.getpid()}

    def compensate(self, error: BaseException) -> None:
        """As long as an undo."""
        with self._recording("comp"):
            time.sleep(self.undo_seconds)

    def undo(self, result: dict[str, Any]) -> None:
        """Takes `undo_seconds`."""
        with self._recording("undo"):
            time.sleep(self.undo_seconds)
            if self.undo_fail_at == self.context.step:
                raise BodyFailed(f"the undo of {self.context.step} was told to fail")

    def _recording(self, verb: str) -> AbstractContextManager[None]:
        notes = {"name": self.name, "key": getattr(self, "key", ""), "execution": self.context.execution_id}
        return recorder.current().recording(f"{verb} {self.context.step}", **notes)


@with_lock("{key}", ttl=TTL)
class LockedWork(Work):
    """One at a time per key; waits for nothing in process."""

    key = Input(str)


@with_lock("{key}", ttl=TTL, wait=5)
class PatientWork(Work):
    """The same, and waits 5 seconds in process."""

    key = Input(str)


@with_lock("{key}", ttl=1)
class BriefWork(Work):
    """A hold that lapses a second after its holder died."""

    key = Input(str)


@with_lock("{key}", ttl=1, auto_extend=False)
class UnkeptWork(Work):
    """A hold that nobody renews."""

    key = Input(str)


@with_lock("{first}", "{second}", ttl=TTL, wait=10)
class TwoKeysWork(Work):
    """Both keys or none."""

    first = Input(str)
    second = Input(str)


class AtomicPosting(Work):
    """Its posting and its checkpoint commit together."""

    account = Input(str)
    amount = Input(int)
    atomic = True

    def run(self) -> dict[str, Any]:
        """Post first, then do what `Work` does: a failure takes the posting back."""
        Posting.objects.create(account=self.account, amount=self.amount, execution=self.context.execution_id)
        return super().run()


class Named(Reactor):
    """The inputs that all of them have; a step's input of the same name is wired by itself."""

    name = Input(str, default="")
    fail_at = Input(str, default="")
    fails = Input(int, default=1_000_000)
    undo_seconds = Input(float, default=0.0)
    undo_fail_at = Input(str, default="")


class Single(Named):
    """One locked step."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(LockedWork)


class Patient(Named):
    """One locked step that waits in process."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(PatientWork)


class Brief(Named):
    """One step whose lock has a ttl of a second."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(BriefWork)


class Unkept(Named):
    """One step whose lock nobody renews."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(UnkeptWork)


class TwoKeys(Named):
    """One step under two keys."""

    first = Input(str)
    second = Input(str)
    seconds = Input(float, default=0.0)

    move = step(TwoKeysWork)


class Payment(Named):
    """audit, charge (locked), notify: `fail_at="notify"` rolls the charge back under its lock."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    other_seconds = Input(float, default=0.0)

    audit = step(Work, seconds=other_seconds)
    charge = step(LockedWork, seconds=seconds, after=audit)
    notify = step(Work, seconds=other_seconds, after=charge)

    returns = charge


class PatientPayment(Named):
    """The same; its charge waits in process."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    other_seconds = Input(float, default=0.0)

    audit = step(Work, seconds=other_seconds)
    charge = step(PatientWork, seconds=seconds, after=audit)
    notify = step(Work, seconds=other_seconds, after=charge)

    returns = charge


class EightSteps(Named):
    """Eight steps, only the third locked."""

    key = Input(str)
    seconds = Input(float, default=0.2)

    s1 = step(Work)
    s2 = step(Work, after=s1)
    s3 = step(PatientWork, after=s2)
    s4 = step(Work, after=s3)
    s5 = step(Work, after=s4)
    s6 = step(Work, after=s5)
    s7 = step(Work, after=s6)
    s8 = step(Work, after=s7)


class Chain(Named):
    """Five steps with an undo each, and a sixth: with `fail_at="c6"` a rollback of five."""

    seconds = Input(float, default=0.0)

    c1 = step(Work)
    c2 = step(Work, after=c1)
    c3 = step(Work, after=c2)
    c4 = step(Work, after=c3)
    c5 = step(Work, after=c4)
    c6 = step(Work, after=c5)


class Retried(Named):
    """A locked step with two attempts, a tenth of a second apart, between two others."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    before = step(Work, seconds=0)
    charge = step(LockedWork, after=before, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.1))
    behind = step(Work, seconds=0, after=charge)


@with_lock("{outer_key}", ttl=TTL)
class Guarded(Named):
    """A reactor under its own lock, with a step under another (or, given the same key, under the same)."""

    outer_key = Input(str)
    key = Input(str)
    seconds = Input(float, default=0.0)

    before = step(Work, seconds=0)
    charge = step(LockedWork, after=before)
    behind = step(Work, seconds=0, after=charge)


@with_lock("{middle_key}", ttl=TTL)
class Middle(Named):
    """Between `Outer` and the contended step: a lock of its own, a step, then `Payment`."""

    middle_key = Input(str)
    key = Input(str)
    seconds = Input(float, default=0.0)

    prepare = step(Work, seconds=0)
    payment = compose(Payment, after=prepare)


@with_lock("{outer_key}", ttl=TTL)
class Outer(Named):
    """Two levels of composition above a locked step, a lock at each level."""

    outer_key = Input(str)
    middle_key = Input(str)
    key = Input(str)
    seconds = Input(float, default=0.0)

    open = step(Work, seconds=0)
    middle = compose(Middle, after=open)
    close = step(Work, seconds=0, after=middle)


class Ordering(Named):
    """a, a composed payment, z: with `fail_at="z"` the payment's steps are undone through the composition."""

    key = Input(str)

    a = step(Work)
    payment = compose(Payment, after=a)
    z = step(Work, after=payment)


class Posted(Named):
    """An atomic step, then one that may fail."""

    account = Input(str)
    amount = Input(int)
    seconds = Input(float, default=0.0)

    post = step(AtomicPosting)
    behind = step(Work, seconds=0, after=post)


class Calling(Named):
    """A locked step whose body calls another locked step inside its execution."""

    key = Input(str)
    inner_key = Input(str)

    @step(name=Named.name, key=key, inner_key=inner_key)
    @with_lock("{key}", ttl=TTL)
    def outer(name: str, key: str, inner_key: str, context: Any) -> Any:
        """Re-entrant on `key`, contending on any other."""
        with recorder.current().recording("run outer", name=name, key=key):
            return LockedWork.call(context=context, name=name, key=inner_key)


class Inline(Named):
    """What `Payment` is, with an inline step in the middle."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    audit = step(Work, seconds=0)

    @step(name=Named.name, key=key, seconds=seconds, fail_at=Named.fail_at, after=audit)
    @with_lock("{key}", ttl=TTL, wait=5)
    def charge(name: str, key: str, seconds: float, fail_at: str) -> str:
        """One at a time per key."""
        with recorder.current().recording("run charge", name=name, key=key):
            time.sleep(seconds)
            if fail_at == "charge":
                raise BodyFailed("charge was told to fail")
        return "charged"

    @charge.undo
    def _(result: str, name: str, key: str) -> None:
        with recorder.current().recording("undo charge", name=name, key=key):
            return

    @charge.compensate
    def _(error: BaseException, name: str, key: str) -> None:
        with recorder.current().recording("comp charge", name=name, key=key):
            return

    notify = step(Work, seconds=0, after=charge)


@with_lock("{key}", ttl=TTL, rollback_wait=0.5)
class HastyWork(Work):
    """Waits half a second for its key to clean up."""

    key = Input(str)


class Hasty(Named):
    """`Payment` with little patience in rollback."""

    key = Input(str)
    other_seconds = Input(float, default=0.0)

    audit = step(Work, seconds=0)
    charge = step(HastyWork, seconds=0, after=audit)
    notify = step(Work, seconds=other_seconds, after=charge)


@with_lock("{key}", ttl=1, auto_extend=False, rollback_wait=0.5)
class OvertakenWork(Work):
    """A hold that nobody renews; waits half a second for its key to clean up."""

    key = Input(str)


class Overtaken(Named):
    """audit, then a step whose key may be another's before it ends."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    audit = step(Work, seconds=0)
    charge = step(OvertakenWork, after=audit)


@with_lock("{key}")
class DefaultsWork(Work):
    """A lock as who sets nothing has it."""

    key = Input(str)


class Defaults(Named):
    """One step with the default lock."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(DefaultsWork)


@with_lock("{key}", ttl=TTL, on_contention="wait", wait=0.5)
class WaitingWork(Work):
    """Blocks its worker for half a second, then fails."""

    key = Input(str)


@with_lock("{key}", ttl=TTL, on_contention="fail")
class FailingWork(Work):
    """Fails at once."""

    key = Input(str)


@with_lock("{key}", ttl=TTL, on_contention="skip")
class SkippingWork(Work):
    """Is skipped."""

    key = Input(str)


class WaitThenFail(Named):
    """audit, then a step that waits for its key in the worker."""

    key = Input(str)
    audit = step(Work)
    charge = step(WaitingWork, after=audit)


class FailFast(Named):
    """audit, then a step that fails when its key is held."""

    key = Input(str)
    audit = step(Work)
    charge = step(FailingWork, after=audit)


class SkipBusy(Named):
    """audit, then a step that is skipped when its key is held, then another."""

    key = Input(str)
    audit = step(Work)
    charge = step(SkippingWork, after=audit)
    notify = step(Work, after=charge)


@with_lock("{key}", ttl=1)
class WatchfulWork(Step):
    """Looks at its hold while it works, and marks it when it sees that it is lost."""

    name = Input(str, default="")
    key = Input(str)
    seconds = Input(float)

    def run(self) -> str:
        """Count in tenths of a second."""
        was_lost = False
        with recorder.current().recording("run charge", name=self.name, key=self.key):
            until = time.monotonic() + self.seconds
            while time.monotonic() < until:
                time.sleep(0.1)
                if not was_lost and self.context.holds[self.key].lost:
                    was_lost = True
                    recorder.current().mark("saw the loss")
        return "charged"


class Watchful(Reactor):
    """One step that watches its hold."""

    name = Input(str, default="")
    key = Input(str)
    seconds = Input(float)

    charge = step(WatchfulWork)


@with_lock("{outer_key}", ttl=1)
class GuardedChain(Named):
    """Five steps under the reactor's own lock, whose hold lapses a second after its holder died."""

    outer_key = Input(str)
    seconds = Input(float, default=0.0)

    c1 = step(Work)
    c2 = step(Work, after=c1)
    c3 = step(Work, after=c2)
    c4 = step(Work, after=c3)
    c5 = step(Work, after=c4)


class SlowRetry(Named):
    """A step whose second attempt is two seconds after its first."""

    charge = step(Work, retry=Retry(max_attempts=3, backoff="fixed", base_delay=2))


class Four(Named):
    """Four steps with an undo each, and a fifth to fail at."""

    f1 = step(Work)
    f2 = step(Work, after=f1)
    f3 = step(Work, after=f2)
    f4 = step(Work, after=f3)
    f5 = step(Work, after=f4)


@with_lock("{key}", ttl=TTL)
class EndingWork(Step):
    """Ends as it is told, under its lock."""

    key = Input(str)
    how = Input(str)

    def run(self) -> Any:
        """Long enough for another to stand in line."""
        with recorder.current().recording("run ending"):
            time.sleep(0.3)
        if self.how == "failure":
            return Failure("as told", retryable=False)
        if self.how == "exception":
            raise BodyFailed("as told")
        if self.how == "skip":
            self.skip()
        if self.how == "halt":
            self.halt()
        return None


class Ending(Reactor):
    """One step that ends as it is told."""

    key = Input(str)
    how = Input(str)

    charge = step(EndingWork)


@with_lock("{key}", ttl=TTL)
class Gated(Named):
    """A reactor that holds its key over a park for another."""

    key = Input(str)
    inner_key = Input(str)

    before = step(Work)
    charge = step(LockedWork, key=inner_key, after=before)


class OddError(Exception):
    """Cannot be pickled, cannot be printed, and is built from things that are no strings."""

    def __init__(self, handle: object, *, number: int) -> None:
        super().__init__(handle, number)
        self.handle = handle

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OddWork(Step):
    """Fails in odd ways, or kills the process it is in."""

    how = Input(str)

    def run(self) -> None:
        """See `how`."""
        with recorder.current().recording("run odd"):
            self._fail()

    def _fail(self) -> None:
        if self.how == "exit":
            os._exit(3)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "unprintable":
            raise OddError(lambda: None, number=7)
        if self.how == "chained":
            try:
                {}["missing"]  # type: ignore[index]
            except KeyError as error:
                raise BodyFailed("the original message") from error
        if self.how == "base":
            raise GroundError("beneath Exception")

    def compensate(self, error: BaseException) -> None:
        """Only that it ran."""
        recorder.current().mark("comp odd", error=type(error).__name__)


class GroundError(BaseException):
    """No `Exception`, and neither a signal nor an exit."""


class Odd(Reactor):
    """Work, then an odd end."""

    how = Input(str)

    before = step(Work)
    odd = step(
        OddWork, after=before, retry=Retry(max_attempts=3, backoff="fixed", base_delay=0, on=(ZeroDivisionError,))
    )


class HardWork(Step):
    """Ten leases long, without a lock: asleep, busy in Python, or deaf in C with the interpreter's lock held."""

    how = Input(str)
    seconds = Input(float)

    def run(self) -> int:
        """Its value says where it ran."""
        with recorder.current().recording("run hard"):
            until = time.monotonic() + self.seconds
            if self.how == "asleep":
                time.sleep(self.seconds)
            elif self.how == "deaf":
                ctypes.PyDLL(None).usleep(int(self.seconds * 1_000_000))
            while time.monotonic() < until:
                sum(range(1000))
        return os.getpid()


class Hard(Reactor):
    """Hard work, then something that reads its value."""

    how = Input(str)
    seconds = Input(float)

    hard = step(HardWork)
    behind = step(Work, after=hard)


class SilentWork(Step):
    """Tells nobody but the database: for tests that take Redis away."""

    account = Input(str)

    def run(self) -> None:
        """A line in the ledger."""
        Posting.objects.create(account=self.account, amount=1, execution=self.context.execution_id)
        time.sleep(0.02)


class Silent(Reactor):
    """Three steps that need nothing of Redis."""

    account = Input(str)

    one = step(SilentWork)
    two = step(SilentWork, after=one)
    three = step(SilentWork, after=two)


class BriefPayment(Named):
    """`Payment` whose hold lapses a second after its holder died."""

    key = Input(str)

    audit = step(Work)
    charge = step(BriefWork, seconds=0, after=audit)
    notify = step(Work, after=charge)


@with_ordered_lock("{key}:line", poison_pill_timeout=10)
@with_period("{key}:once", every=315_360_000)
@with_rate_limit("{key}:rate", limit=10, period=3600)
@with_lock("{key}", ttl=1)
@with_semaphore("{key}:pool", limit=1, ttl=1)
class UnderAllFive(Work):
    """All five at one step, with leases of a second."""

    key = Input(str)


class FamilyPayment(Named):
    """`Payment` under all five."""

    key = Input(str)

    audit = step(Work)
    charge = step(UnderAllFive, seconds=0, after=audit)
    notify = step(Work, after=charge)
