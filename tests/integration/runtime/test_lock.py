"""A step declares the lock it needs: who is inside, who is refused, and what is left behind (lock_01 to lock_14)."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import pytest

from reactor_coord import Input, Reactor, Retry, Step, step, testing, with_lock
from reactor_coord.testing import faults
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder, client, current
from tests.integration.runtime.support import (
    Background,
    approximately,
    at_once,
    eventually,
    failure,
    forked,
    kill,
    told,
)
from tests.live.reactors import Brief, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


def test_lock_01_same_key_never_overlaps(payment: type[Reactor], recorder: Recorder) -> None:
    for number in range(20):
        both = at_once(
            partial(payment.run, name=f"a{number}", key="k", seconds=0.01),
            partial(payment.run, name=f"b{number}", key="k", seconds=0.01),
        )
        assert [outcome.status for outcome in both] == ["completed", "completed"]
    assert recorder.count("run charge") == 40
    assert recorder.overlaps("run charge") == []


def test_lock_02_different_keys_overlap(payment: type[Reactor], recorder: Recorder) -> None:
    at_once(lambda: payment.run(key="k1", seconds=0.5), lambda: payment.run(key="k2", seconds=0.5))
    assert recorder.overlaps("run charge")


class _Sees(Step):
    key = Input(str)

    def run(self) -> None:
        testing.assert_free(self.key)
        current().mark("saw it free")


def test_lock_03_the_next_step_sees_the_key_free(payment: type[Reactor], recorder: Recorder) -> None:
    class Followed(payment):  # type: ignore[misc, valid-type]
        look = step(_Sees, key=payment.key, after=payment.charge)  # type: ignore[attr-defined]

    outcome = Followed.run(key="k")
    assert outcome.succeeded, outcome.failure
    assert recorder.count("saw it free") == 1


@pytest.mark.parametrize("way", ["return", "fail"])
def test_lock_04_the_key_is_free_after_a_returned_failure(payment: type[Reactor], way: str, recorder: Recorder) -> None:
    outcome = payment.run(key="k", way=way)
    assert failure(outcome).step == "charge"
    assert outcome.failure is not None and outcome.failure.error_type == "Failure"
    assert recorder.sequence() == ["run before", "run charge", "comp charge", "undo before"]
    testing.assert_free("k")


def test_lock_05_the_key_is_free_after_a_raise(payment: type[Reactor], recorder: Recorder) -> None:
    outcome = payment.run(key="k", way="raise")
    assert failure(outcome).error_type == "BodyFailed"
    assert recorder.sequence() == ["run before", "run charge", "comp charge", "undo before"]
    testing.assert_free("k")


@with_lock("acct:{account}", ttl=5)
class _Account(Step):
    account = Input(int)

    def run(self) -> list[str]:
        return sorted(key for _, key in self.context.holds)


class _Mapped(Reactor):
    account = Input(int)
    charge = step(_Account, account=account.map(lambda number: number + 100))


def test_lock_06_the_key_is_that_of_the_mapped_argument() -> None:
    outcome = _Mapped.run(account=1)
    assert outcome.value == ["acct:101"]
    assert told(outcome, "acquired") == [("acquired", "charge", "acct:101")]


def _raising(arguments: Any) -> str:
    raise ZeroDivisionError("no key today")


@pytest.mark.parametrize(
    "key, cause",
    [(_raising, "no key today"), (lambda _: None, "None"), (lambda _: "", "empty")],
    ids=["raises", "none", "empty"],
)
def test_lock_07_a_key_that_cannot_be_computed_fails_the_step(key: Any, cause: str, recorder: Recorder) -> None:
    @with_lock(key, ttl=5)
    class Keyed(Work):
        retry = Retry(max_attempts=3, base_delay=0.01)

    class Keying(Named):
        before = step(Work)
        charge = step(Keyed, after=before)

    outcome = Keying.run()
    assert failure(outcome).step == "charge"
    assert failure(outcome).error_type == "CoordinationKeyError"
    assert "charge" in failure(outcome).message
    assert cause in failure(outcome).message or cause in repr(failure(outcome).error.__cause__)
    assert recorder.sequence() == ["run before", "undo before"]
    assert told(outcome, "retrying", "acquired") == []


@with_lock("{key}", ttl=5)
class _Guarded(Work):
    key = Input(str)

    def guard(self) -> None:
        self.skip(reason="not today")


class _NotRun(Named):
    key = Input(str)
    unwanted = step(_Account, account=1, where=lambda account: False)
    skipped = step(_Guarded)


def test_lock_08_what_will_not_run_takes_nothing() -> None:
    with testing.hold("k"):
        outcome = _NotRun.run(key="k")
    assert outcome.succeeded
    assert told(outcome, "acquired", "refused", "released") == []
    reasons = [row.data["reason"] for row in outcome.execution.trace.filter(kind="step_skipped").order_by("id")]
    assert reasons == ["where", "not today"]


@pytest.mark.slow
def test_lock_09_a_body_that_outlives_its_ttl_is_alone_all_the_way(recorder: Recorder) -> None:
    holder = Background(lambda: Brief.run(key="k", seconds=2.5))
    recorder.wait_for("run charge")
    refused = 0
    while not holder.is_done:
        outcome = Brief.run(key="k")
        if outcome.failed:
            assert failure(outcome).error_type == "LockContended"
            refused += 1
            time.sleep(0.05)
        else:
            break
    assert holder.result().succeeded
    assert refused > 10
    assert recorder.overlaps("run charge") == []


def test_lock_10_the_key_of_a_killed_holder_is_free_after_the_ttl(recorder: Recorder) -> None:
    with forked(lambda: Brief.run(key="k", seconds=30)) as pid:
        recorder.wait_for("run charge")
        time.sleep(1.5)  # renewed: it has outlived its ttl
        assert Brief.run(key="k").failed
        kill(pid)
        killed_at = time.monotonic()
        outcome = eventually(lambda: (found := Brief.run(key="k")).succeeded and found)
        assert time.monotonic() - killed_at < 1.5
    assert outcome.succeeded


def test_lock_11_without_redis_the_body_never_runs(
    payment: type[Reactor], redis_proxy: Proxy, recorder: Recorder
) -> None:
    redis_proxy.refuse()
    outcome = payment.run(key="k")
    error = failure(outcome).error
    assert failure(outcome).step == "charge"
    assert failure(outcome).error_type == "CoordinationUnavailable"
    assert type(error.__cause__).__name__ in {"ConnectionError", "TimeoutError"}
    assert (error.step, error.key, error.primitive) == ("charge", "k", "lock")
    assert recorder.sequence() == ["run before", "undo before"]


@with_lock("{key}", ttl=1, auto_extend=False)
class _Overrun(Step):
    """Holds longer than it may; the test lets it go on."""

    key = Input(str)
    overruns = Input(bool, default=False)

    def run(self) -> dict[str, int]:
        fence = self.context.fence(self.key)
        with current().recording("run overrun"):
            if self.overruns:
                eventually(lambda: current().count("taken over"))
        return {"fence": fence}

    def undo(self, result: Any) -> None:
        raise AssertionError("it did not succeed")


class _Overrunning(Reactor):
    key = Input(str)
    charge = step(_Overrun, key=key, overruns=True)


def test_lock_12_a_lapsed_hold_is_lost_and_its_release_frees_nothing(recorder: Recorder) -> None:
    first = Background(lambda: _Overrunning.run(key="k"))
    recorder.wait_for("run overrun")
    second = eventually(lambda: _taken("k"), within=3)
    with second:
        recorder.mark("taken over")
        outcome = first.result()
        assert failure(outcome).error_type == "LockLost"
        testing.assert_locked("k")
        assert _holder_of("k") == second.held.owner
    assert [row[:2] for row in told(outcome, "lock_lost")] == [("lock_lost", "charge")]
    testing.assert_free("k")


class _Taking:
    """`testing.hold`, entered already."""

    def __init__(self, context: Any, held: Any) -> None:
        self.context, self.held = context, held

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


def _taken(key: str) -> _Taking | None:
    context = testing.hold(key)
    try:
        return _Taking(context, context.__enter__())
    except AssertionError:
        return None


def _holder_of(key: str) -> str:
    from reactor_coord.coordination import inspect

    found = inspect.look(key).hold
    return found.owner if found else ""


@with_lock("{key}", ttl=0.3, auto_extend=False, on_lost="warn")
class _Fenced(Step):
    key = Input(str)
    seconds = Input(float, default=0.0)

    def run(self) -> int:
        time.sleep(self.seconds)
        return self.context.fence(self.key)


class _Fencing(Reactor):
    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(_Fenced)


def test_lock_13_fencing_tokens_only_grow(reactor_prefix: str, settings: Any) -> None:
    redis = client(str(settings.CACHES["default"]["LOCATION"]))
    fences = []
    for number in range(50):
        if number == 20:  # expired in its holder's hands
            outcome = _Fencing.run(key="k", seconds=0.4)
        elif number == 35:  # all that Redis knew is gone
            redis.delete(*redis.scan_iter(f"{reactor_prefix}:*"))
            outcome = _Fencing.run(key="k")
        else:
            outcome = _Fencing.run(key="k")
        assert outcome.succeeded
        fences.append(outcome.value)
    assert fences == sorted(set(fences))


class _TwoHeld(Step):
    first = Input(str)
    second = Input(str)

    def run(self) -> list[str]:
        with current().recording("run both"):
            return sorted(key for _, key in self.context.holds)


@with_lock("a:{first}", "a:{second}", ttl=5, wait=30)
class _Both(_TwoHeld):
    pass


class _Crossing(Reactor):
    first = Input(str)
    second = Input(str)
    move = step(_Both)


@pytest.mark.slow
def test_lock_14_two_keys_in_either_order_never_deadlock(recorder: Recorder) -> None:
    def rounds(first: str, second: str) -> list[Any]:
        return [_Crossing.run(first=first, second=second).unwrap() for _ in range(200)]

    begun = time.monotonic()
    one, other = at_once(lambda: rounds("x", "y"), lambda: rounds("y", "x"), timeout=150)
    assert one + other == [["a:x", "a:y"]] * 400
    assert time.monotonic() - begun < 100
    assert recorder.overlaps("run both") == []


def test_lock_14_a_key_named_twice_is_one() -> None:
    assert _Crossing.run(first="x", second="x").unwrap() == ["a:x"]
    testing.assert_free("a:x")


def test_b011_a_lost_hold_with_warn_keeps_the_result_and_says_so(recorder: Recorder) -> None:
    # Where the case and semantics 3 pull apart, `on_lost="fail"` (lock_12) fails the step; "warn" is the case's wish.
    outcome = _Fencing.run(key="k", seconds=0.5)
    assert outcome.succeeded
    assert told(outcome, "lock_lost") == [("lock_lost", "charge", "k")]


def test_b011_the_error_of_a_body_that_failed_itself_is_not_replaced() -> None:
    class Failing(_Overrun):
        def run(self) -> Any:
            time.sleep(1.2)
            raise ArithmeticError("mine")

    class Losing(Reactor):
        key = Input(str)
        charge = step(Failing, key=key)

    outcome = Losing.run(key="k")
    assert failure(outcome).error_type == "ArithmeticError"
    assert told(outcome, "lock_lost") == [("lock_lost", "charge", "k")]


def test_b001_a_ttl_that_cannot_be_is_refused_and_a_short_one_is_renewed(recorder: Recorder) -> None:
    from reactor_coord import DefinitionError

    for bad in (0, None, -1):
        with pytest.raises(DefinitionError):
            with_lock("{key}", ttl=bad)  # type: ignore[arg-type]

    @with_lock("{key}", ttl=0.3)
    class Short(Work):
        key = Input(str)

    class Shortly(Named):
        key = Input(str)
        seconds = Input(float, default=0.0)
        charge = step(Short)

    holder = Background(lambda: Shortly.run(key="k", seconds=1.5))
    recorder.wait_for("run charge")
    while recorder.intervals("run charge")[0].is_open:
        Shortly.run(key="k")
        time.sleep(0.05)
    assert holder.result().succeeded
    assert recorder.overlaps("run charge") == []


def test_b014_one_lost_key_disturbs_no_other_step(recorder: Recorder) -> None:
    from reactor_coord.coordination import inspect
    from reactor_coord.operations import release_key

    running = {f"k{number}": Background(partial(Brief.run, key=f"k{number}", seconds=2.0)) for number in range(8)}
    recorder.wait_for("run charge", 8)
    fence = inspect.look("k3").hold.fence  # type: ignore[union-attr]
    assert release_key("k3", fence=fence)
    outcomes = {key: each.result() for key, each in running.items()}
    assert [key for key, outcome in outcomes.items() if outcome.failed] == ["k3"]
    assert failure(outcomes["k3"]).error_type == "LockLost"
    assert told(outcomes["k4"], "lock_lost") == []


class _Nesting(Step):
    """Waits until its hold has lapsed and the other has the key, then enters again."""

    key = Input(str)

    def run(self) -> Any:
        current().mark("outer")
        eventually(lambda: current().count("taken over"))
        return _InnerBrief.call(context=self.context, key=self.key)


@with_lock("{key}", ttl=0.5, auto_extend=False)
class _OuterBrief(_Nesting):
    pass


@with_lock("{key}", ttl=5)
class _InnerBrief(Step):
    key = Input(str)

    def run(self) -> None:
        current().mark("inner")


class _Reentering(Reactor):
    key = Input(str)
    outer = step(_OuterBrief)


def test_b015_reentry_after_a_silent_expiry_steals_nothing(recorder: Recorder) -> None:
    running = Background(lambda: _Reentering.run(key="k"))
    recorder.wait_for("outer")
    with eventually(lambda: _taken("k")):
        recorder.mark("taken over")
        outcome = running.result()
        assert failure(outcome).error_type == "LockContended"
        testing.assert_locked("k")
    assert recorder.count("inner") == 0


@pytest.mark.parametrize("auto_extend", [True, False])
def test_b018_reentry_refreshes_the_lease_and_its_exit_frees_nothing(auto_extend: bool, recorder: Recorder) -> None:
    @with_lock("{key}", ttl=1, auto_extend=auto_extend)
    class Inner(Step):
        key = Input(str)

        def run(self) -> None:
            time.sleep(0.8)  # past the outer hold's first ttl

    @with_lock("{key}", ttl=1, auto_extend=auto_extend)
    class Outer(Step):
        key = Input(str)

        def run(self) -> None:
            with current().recording("run outer"):
                time.sleep(0.6)
                Inner.call(context=self.context, key=self.key)
                testing.assert_locked(self.key)
                time.sleep(0.1)

    class Twice(Reactor):
        key = Input(str)
        outer = step(Outer)

    running = Background(lambda: Twice.run(key="k"))
    recorder.wait_for("run outer")
    assert Patiently.run(key="k").succeeded
    assert running.result().succeeded
    assert recorder.overlaps("run outer", "run charge") == []


@with_lock("{key}", ttl=5, wait=10)
class _PatientWork(Work):
    key = Input(str)


class Patiently(Named):
    """Waits ten seconds for its key."""

    key = Input(str)
    charge = step(_PatientWork)


def test_b021_expiry_counts_within_one_process_too(recorder: Recorder) -> None:
    def entered() -> float:
        begun = time.monotonic()
        Patiently.run(key="k").unwrap()
        return time.monotonic() - begun

    @with_lock("{key}", ttl=1, auto_extend=False)
    class Stuck(Step):
        key = Input(str)

        def run(self) -> None:
            current().mark("stuck")
            eventually(lambda: current().count("leave"))

    class Sticking(Reactor):
        key = Input(str)
        outer = step(Stuck)

    stuck = Background(lambda: Sticking.run(key="k"))
    recorder.wait_for("stuck")
    assert entered() == approximately(1.0)
    recorder.mark("leave")
    assert failure(stuck.result()).error_type == "LockLost"


def test_b024_two_executions_on_one_thread_are_two_owners(recorder: Recorder) -> None:
    seen: list[Any] = []

    @with_lock("{key}", ttl=0.5, auto_extend=False)
    class Around(Step):
        key = Input(str)

        def run(self) -> None:
            apart = Brief.options(independent=True)  # another execution, on the same thread
            seen.append(apart.run(key=self.key))
            time.sleep(0.7)
            seen.append(apart.run(key=self.key))
            seen.append(_taken(self.key))

    class Surrounding(Reactor):
        key = Input(str)
        outer = step(Around)

    outcome = Surrounding.run(key="k")
    within, after, taken = seen
    assert failure(within).error_type == "LockContended"
    assert after.succeeded
    assert failure(outcome).error_type == "LockLost"
    assert _holder_of("k") == taken.held.owner
    taken.__exit__(None, None, None)


def test_b026_a_release_that_redis_did_not_answer_is_tried_again(redis_proxy: Proxy, recorder: Recorder) -> None:
    @with_lock("{key}", ttl=120)
    class Long(Work):
        key = Input(str)

    class Lengthy(Named):
        key = Input(str)
        charge = step(Long)

    with faults.installed({"release.before": {"action": "gate"}}):
        running = Background(lambda: Lengthy.run(key="k"))
        faults.wait_reached("release.before")
        redis_proxy.refuse()
        faults.open_gate("release.before")
        assert running.result().succeeded
    redis_proxy.refuse(False)
    begun = time.monotonic()
    eventually(lambda: Lengthy.run(key="k").succeeded, within=10)
    assert time.monotonic() - begun < 5


def _opposite(first: str, second: str, wait: float) -> type[Reactor]:
    @with_lock(first, ttl=5, wait=5)
    class Holding(Reactor):
        @step
        @with_lock(second, ttl=5, wait=wait)
        def inner() -> None:
            with current().recording("inner"):
                time.sleep(0.01)

    return Holding


def test_b030_opposite_orders_over_two_levels_end_with_a_clear_error() -> None:
    # Found when the second one begins to wait, long before the declared 5 s; or they met one after the other.
    one, other = _opposite("a", "b", 5), _opposite("b", "a", 5)
    for _ in range(10):
        begun = time.monotonic()
        outcomes = at_once(one.run, other.run)
        assert time.monotonic() - begun < 3
        given_up = [outcome for outcome in outcomes if not outcome.succeeded]
        assert len(given_up) <= 1
        assert all(failure(outcome).error_type == "DeadlockDetected" for outcome in given_up)
        time.sleep(random.random() / 50)
    testing.assert_free("a")
    testing.assert_free("b")
