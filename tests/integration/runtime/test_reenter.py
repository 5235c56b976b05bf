"""Re-entrancy: a hold belongs to the execution tree, and opens nothing else (reenter_01 to 04, 08 to 10)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord import Input, LockContended, Reactor, Retry, Step, compose, signals, step, testing, with_lock
from reactor_coord.coordination import inspect
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, approximately, failure, told
from tests.live.reactors import Calling, Guarded, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class _Looks(Step):
    """Notes how the key is held while it runs."""

    key = Input(str)

    def run(self) -> dict[str, Any]:
        hold = inspect.look(self.key).hold
        return {"owner": hold.owner, "count": hold.count, "root": self.context.root_id} if hold else {}


@with_lock("{key}", ttl=5)
class _LockedLooks(_Looks):
    pass


@with_lock("{key}", ttl=5)
class Within(Named):
    """A composed child under the same key, and a step in it as well."""

    key = Input(str)
    charge = step(LockedWork)
    look = step(_Looks, after=charge)
    returns = look


class Around(Named):
    """The compose step itself is locked: a locked step whose body is a child."""

    key = Input(str)
    inner = compose(Within, coordination=[with_lock("{key}", ttl=5)])
    look = step(_Looks, after=inner)
    returns = inner


class TwiceInOrder(Named):
    """Two steps, one key."""

    key = Input(str)
    first = step(LockedWork)
    second = step(LockedWork, after=first)


def test_reenter_01_reactor_and_step_on_one_key(recorder: Recorder) -> None:
    begun = time.monotonic()
    outcome = Guarded.run(outer_key="k", key="k")
    assert outcome.succeeded, outcome.failure
    assert time.monotonic() - begun < 2
    assert recorder.sequence() == ["run before", "run charge", "run behind"]
    testing.assert_free("k")


def test_reenter_02_a_locked_steps_child_locks_the_same_key(recorder: Recorder) -> None:
    outcome = Around.run(key="k")
    assert outcome.succeeded, outcome.failure
    testing.assert_free("k")
    assert recorder.count("run charge") == 1


def test_reenter_03_inner_releases_free_nothing_and_the_key_is_counted_once() -> None:
    class Twofold(Named):
        key = Input(str)
        within = step(_LockedLooks)
        behind = step(_Looks, after=within)

    @with_lock("{key}", ttl=5)
    class Under(Twofold):
        key = Input(str)

    outcome = Under.run(key="k")
    owner = str(outcome.execution.id)
    assert outcome.results["within"] == {"owner": owner, "count": 2, "root": owner}
    assert outcome.results["behind"] == {"owner": owner, "count": 1, "root": owner}
    testing.assert_free("k")
    assert [view.key for view in inspect.holds()] == []


def test_reenter_03_the_registry_lists_the_key_once(recorder: Recorder) -> None:
    running = Background(lambda: Guarded.run(outer_key="k", key="k", seconds=0.5))
    recorder.wait_for("run charge")
    assert [(view.key, view.count) for view in inspect.holds()] == [("k", 2)]
    assert running.result().succeeded


def test_reenter_04_two_steps_with_one_key_run_in_order(recorder: Recorder) -> None:
    outcome = TwiceInOrder.run(key="k")
    assert outcome.succeeded
    assert recorder.sequence() == ["run first", "run second"]
    assert told(outcome, "acquired", "released") == [
        ("acquired", "first", "k"),
        ("released", "first", "k"),
        ("acquired", "second", "k"),
        ("released", "second", "k"),
    ]


@with_lock("{key}", ttl=5, wait=0.6)
class _Called(Step):
    key = Input(str)
    fails = Input(bool, default=False)

    def run(self) -> dict[str, Any]:
        if self.fails:
            raise ArithmeticError("called in vain")
        return {"held": sorted(key for _, key in self.context.holds), "fence": self.context.fence(self.key)}


def test_reenter_08_a_call_of_its_own_contends_with_everybody() -> None:
    with testing.hold("k"):
        begun = time.monotonic()
        with pytest.raises(LockContended) as caught:
            _Called.call(key="k")
        assert time.monotonic() - begun == approximately(0.6)
    assert (caught.value.step, caught.value.key, caught.value.primitive) == ("_Called", "k", "lock")
    assert "testing.hold" in str(caught.value.holder)


def test_reenter_08_a_call_of_its_own_takes_and_gives_back() -> None:
    value = _Called.call(key="k")
    assert value["held"] == ["k"]
    testing.assert_free("k")
    with pytest.raises(ArithmeticError):
        _Called.call(key="k", fails=True)
    testing.assert_free("k")


def test_reenter_08_a_call_contends_with_a_running_workflow(recorder: Recorder) -> None:
    running = Background(lambda: Guarded.run(outer_key="k", key="k2", seconds=1.0))
    recorder.wait_for("run charge")
    with pytest.raises(LockContended):
        _Called.call(key="k")
    assert running.result().succeeded


def test_reenter_08_a_call_tells_the_class_and_no_reactor() -> None:
    heard: list[tuple[str, str, str, str]] = []

    def hear(sender: Any, **told: Any) -> None:
        heard.append((str(told["kind"]), told["reactor"], told["step"], told["key"]))

    for signal in (signals.hold_acquired, signals.hold_released):
        signal.connect(hear)
    try:
        _Called.call(key="k")
    finally:
        for signal in (signals.hold_acquired, signals.hold_released):
            signal.disconnect(hear)
    assert heard == [("acquired", "", "_Called", "k"), ("released", "", "_Called", "k")]


def test_reenter_09_a_step_takes_its_lock_exactly_once(recorder: Recorder) -> None:
    class Counted(Named):
        key = Input(str)
        charge = step(_LockedLooks)

    outcome = Counted.run(key="k")
    assert outcome.results["charge"]["count"] == 1
    assert told(outcome, "acquired") == [("acquired", "charge", "k")]


def test_reenter_10_a_call_in_the_body_enters_what_is_held(recorder: Recorder) -> None:
    outcome = Calling.run(key="k", inner_key="k")
    assert outcome.succeeded, outcome.failure
    assert recorder.sequence() == ["run outer", "run outer"]  # the inner body records under the calling step's name
    testing.assert_free("k")
    assert [row[1] for row in told(outcome, "acquired")] == ["outer", "LockedWork"]


def test_reenter_10_a_call_in_the_body_contends_for_any_other_key() -> None:
    with testing.hold("other"):
        outcome = Calling.run(key="k", inner_key="other")
    assert failure(outcome).step == "outer"
    assert failure(outcome).error_type == "LockContended"
    assert (failure(outcome).error.key, failure(outcome).error.step) == ("other", "LockedWork")
    testing.assert_free("k")
    testing.assert_free("other")


def test_reenter_10_in_a_worker_it_is_a_failure_too_and_not_a_park(reactor_dispatches: Any, recorder: Recorder) -> None:
    with testing.hold("other"):
        handle = Calling.enqueue(key="k", inner_key="other")
        testing.drain()
    assert handle.status == "failed"
    assert told(handle, "parked") == []
    testing.assert_free("k")


def test_reenter_10_the_inner_step_may_be_retried_like_any_failure(recorder: Recorder) -> None:
    class Persistent(Step):
        retry = Retry(max_attempts=3, backoff="fixed", base_delay=0.05, on=(LockContended,))

        def run(self) -> Any:
            current().mark(f"try {self.context.attempt}")
            return _Quick.call(context=self.context, key="other")

    @with_lock("{key}", ttl=5)
    class _Quick(Step):
        key = Input(str)

        def run(self) -> str:
            return "had it"

    class Persisting(Reactor):
        charge = step(Persistent)

    with testing.hold("other") as held:
        running = Background(Persisting.run)
        recorder.wait_for("try 1")
        recorder.wait_for("try 2")
        held.release()
        outcome = running.result()
    assert outcome.succeeded, outcome.failure


@with_lock("{key}", ttl=5)
class _Gateway(Step):
    """Charges once for each idempotency key, as a gateway does."""

    key = Input(str)

    def run(self) -> str:
        self.context.logger.info("charging")
        return self.context.idempotency_key


class _Splits(Step):
    """Two charges in one body, and one of another step."""

    retry = Retry(max_attempts=2, backoff="fixed", base_delay=0.01)

    def run(self) -> list[str]:
        context = self.context
        keys = [context.idempotency_key, *(_Gateway.call(context=context, key=key) for key in ("k1", "k2"))]
        current().mark("keys", keys=keys)
        if context.attempt == 1:
            raise ConnectionError("once")
        return keys


def test_each_call_in_a_body_has_an_idempotency_key_of_its_own_at_every_attempt(recorder: Recorder) -> None:
    class Splitting(Reactor):
        split = step(_Splits)

    outcome = Splitting.run()
    assert outcome.succeeded
    assert len(set(outcome.value)) == 3
    assert [entry.notes["keys"] for entry in recorder.entries()] == [outcome.value] * 2
    assert all(key.startswith(f"{outcome.execution.id}:split") for key in outcome.value)


@with_lock("{key}", ttl=5)
class _Outermost(Step):
    key = Input(str)
    inner_key = Input(str)

    def run(self) -> Any:
        inner = _Called.call(context=self.context, key=self.inner_key)
        testing.assert_locked(self.key)
        return inner, self.context.holds[self.key].fencing_token


def test_reenter_10_a_call_inside_a_call_is_part_of_it() -> None:
    inner, fence = _Outermost.call(key="k", inner_key="k")
    assert inner == {"held": ["k"], "fence": fence}
    testing.assert_free("k")
    inner, _ = _Outermost.call(key="k", inner_key="k2")
    assert inner["held"] == ["k", "k2"]
    with testing.hold("k2"), pytest.raises(LockContended):
        _Outermost.call(key="k", inner_key="k2")
    testing.assert_free("k")


def test_holding_one_key_opens_no_other(recorder: Recorder) -> None:
    with testing.hold("k"):
        outcome = Guarded.run(outer_key="outer", key="k")
    assert failure(outcome).error_type == "LockContended"
    assert failure(outcome).step == "charge"
    testing.assert_free("outer")


@pytest.mark.parametrize("policy", ["park", "wait", "fail"])
def test_b016_the_same_execution_enters_its_key_in_every_mode(policy: str, recorder: Recorder) -> None:
    @with_lock("{key}", ttl=5, on_contention=policy)
    class Locked(Work):
        key = Input(str)

    @with_lock("{key}", ttl=5, on_contention=policy)
    class Child(Named):
        key = Input(str)
        inner = step(Locked)

    @with_lock("{key}", ttl=5, on_contention=policy)
    class Parent(Named):
        key = Input(str)
        own = step(Locked)
        child = compose(Child, after=own)

    begun = time.monotonic()
    outcome = Parent.run(key="k")
    assert outcome.succeeded, outcome.failure
    assert time.monotonic() - begun < 2
    assert told(outcome, "refused") == []
    testing.assert_free("k")
