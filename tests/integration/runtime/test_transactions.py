"""Transactions: starts, atomic steps, and what is open while a body runs (semantics 8; B168, B169)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from reactor_coord import (
    Input,
    LockLost,
    Reactor,
    Step,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from reactor_coord.errors import NotRunnable
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.testing import faults
from reactor_coord.testing.recorder import Recorder, client, current
from tests.integration.runtime.support import Background, at_once, eventually, failure, row, runs, told, trace
from tests.live.models import Posting
from tests.live.reactors import Named, Patient, Single, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5, wait=5)
class Post(Step):
    """Writes, then ends in the way that is asked for."""

    key = Input(str)
    way = Input(str, default="")
    atomic = True

    def run(self) -> Any:
        current().mark("run post", seen=Posting.objects.count())
        Posting.objects.create(account=self.key, amount=1, execution=self.context.execution_id)
        if self.way == "raise":
            raise ArithmeticError("after the write")
        if self.way == "skip":
            self.skip("skipped value", reason="mine")
        if self.way == "halt":
            self.halt(reason="mine")
        if self.way == "constraint":  # checked when the transaction commits, not before
            StepRun.objects.create(execution_id="00000000-0000-7000-8000-000000000000", step="nobody", kind="step")
        if self.way == "broken":
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM tests_live_no_such_table")
        if self.way == "swallowed":
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT no_such_column FROM tests_live_no_such_table")
            except Exception:
                return "went on"
        return "posted"

    def undo(self, result: Any) -> None:
        current().mark("undo post", in_transaction=connection.in_atomic_block)


class Posts(Named):
    key = Input(str)
    way = Input(str, default="")
    a = step(Work)
    post = step(Post, after=a)
    behind = step(Work, after=post)


@pytest.mark.parametrize("way, status, kept", [("", "completed", 1), ("skip", "completed", 1), ("halt", "halted", 1)])
def test_atomic_success_skip_and_halt_commit_the_writes(way: str, status: str, kept: int) -> None:
    outcome = Posts.run(key="k", way=way)
    assert outcome.status == status
    assert Posting.objects.count() == kept
    testing.assert_free("k")


@pytest.mark.parametrize("way", ["raise", "constraint", "broken"])
def test_atomic_failure_takes_the_writes_back(way: str, recorder: Recorder) -> None:
    outcome = Posts.run(key="k", way=way)
    assert failure(outcome).step == "post"
    assert Posting.objects.count() == 0
    assert not StepRun.objects.filter(step="nobody").exists()
    assert recorder.sequence() == ["run a", "run post", "undo a"]
    testing.assert_free("k")


def test_a_commit_that_fails_leaves_no_trace_of_a_success(recorder: Recorder) -> None:
    outcome = Posts.run(key="k", way="constraint")
    assert failure(outcome).error_type == "IntegrityError"
    assert told(outcome, "acquired", "released", "step_succeeded", "step_failed") == [
        ("step_succeeded", "a", ""),
        ("acquired", "post", "k"),
        ("step_failed", "post", ""),
        ("released", "post", "k"),
    ]
    run = runs(outcome)["post"]
    assert (run.status, run.completion_order, run.result) == ("failed", None, None)
    assert runs(outcome)["a"].status == "undone"


@pytest.mark.parametrize("way", ["", "halt"])
def test_the_lock_is_given_back_after_the_commit(way: str, recorder: Recorder) -> None:
    with faults.installed({"release.before": {"action": "gate"}}):
        first = Background(lambda: Posts.run(key="k", way=way))
        faults.wait_reached("release.before")
        assert Posting.objects.count() == 1
        testing.assert_locked("k")
        second = Background(lambda: Posts.run(key="k"))
        eventually(lambda: inspect.look("k").waiting)
        faults.open_gate("release.before")
        first.result()
        second.result()
    seen = [entry.notes["seen"] for entry in recorder.entries() if entry.label == "run post"]
    assert seen == [0, 1]


@with_lock("{key}", ttl=5)
class Inner(Step):
    """Called inside a body; it writes nothing itself."""

    key = Input(str)

    def run(self) -> str:
        current().mark("inner")
        return "inner"


@with_lock("{key}:middle", ttl=5)
class Middle(Step):
    """Called inside a body, in a transaction of its own or in none, and calls another."""

    key = Input(str)
    atomic = True

    def run(self) -> str:
        return str(Inner.call(key=self.key, context=self.context))


class Calls(Step):
    """Calls a locked step in its transaction, in the way that is asked for."""

    key = Input(str)
    way = Input(str, default="atomic")

    def run(self) -> None:
        Posting.objects.create(account=self.key, amount=1, execution=self.context.execution_id)
        self.work()
        if self.way == "raise":
            raise ArithmeticError("after the call")

    def work(self) -> None:
        called = Middle if self.way == "middle" else Inner
        for _ in range(2):
            called.call(key=self.key, context=self.context)
        testing.assert_locked(self.key)


class CallsAtomically(Calls):
    atomic = True


class CallsInOneOfItsOwn(Calls):
    def run(self) -> None:
        with transaction.atomic():
            super().run()


class CallsInUndo(Work):
    atomic = True
    key = Input(str)

    def undo(self, result: Any) -> None:
        Posting.objects.create(account=self.key, amount=1)
        Inner.call(key=self.key, context=self.context)
        testing.assert_locked(self.key)


CALLERS = {
    "atomic": CallsAtomically,
    "middle": CallsAtomically,
    "by hand": CallsInOneOfItsOwn,
    "raise": CallsAtomically,
}


@pytest.mark.parametrize("way", [*CALLERS, "undo"])
def test_u100_the_lock_of_a_call_is_given_back_with_the_outer_steps_after_the_commit(
    way: str, recorder: Recorder
) -> None:
    class Undone(Named):
        key = Input(str)
        called = step(CallsInUndo)
        behind = step(Work, after=called)

    class Calling(Named):
        key = Input(str)
        called = step(CALLERS.get(way, Calls), key=key, way=way)

    def run() -> Any:
        return Undone.run(key="k", fail_at="behind") if way == "undo" else Calling.run(key="k")

    with faults.installed({"release.before": {"action": "gate"}}):
        first = Background(run)
        faults.wait_reached("release.before")
        assert Posting.objects.count() == (0 if way == "raise" else 1)
        testing.assert_locked("k")
        faults.open_gate("release.before")
        assert first.result().status == ("failed" if way in {"raise", "undo"} else "completed")
    assert recorder.count("inner") == (1 if way == "undo" else 2)
    testing.assert_free("k")


def test_u100_outside_a_transaction_a_call_gives_its_lock_back_when_it_ends() -> None:
    class Twice(Step):
        def run(self) -> None:
            Inner.call(key="k", context=self.context)
            testing.assert_free("k")

    class Calling(Reactor):
        called = step(Twice)

    assert Calling.run().succeeded


@pytest.mark.parametrize("primitive", ["semaphore", "ordered_lock"])
def test_two_calls_in_one_transaction_do_not_wait_for_each_others_slot_or_turn(primitive: str) -> None:
    declared = with_semaphore("s", limit=1, ttl=5) if primitive == "semaphore" else with_ordered_lock("s")

    class One(Inner):
        pass

    class Other(Inner):
        pass

    class Both(Step):
        atomic = True

        def run(self) -> None:
            for called in (declared(One), declared(Other)):
                called.call(key="k", context=self.context)

    class Calling(Reactor):
        called = step(Both)

    assert Calling.run().succeeded
    testing.assert_free("k")


class Unpost(Post):
    """Its cleanups write too, then end in the way that is asked for; written once `way` no longer says otherwise."""

    cleanup = Input(str, default="")

    def undo(self, result: Any) -> None:
        self.clean()

    def compensate(self, error: BaseException) -> None:
        self.clean()

    def clean(self) -> None:
        current().mark("clean", in_transaction=connection.in_atomic_block)
        Posting.objects.create(account=self.key, amount=-1, execution=self.context.execution_id)
        way = WAYS.pop(self.cleanup, "")
        if way == "raise":
            raise ArithmeticError("after the write")
        if way == "return":
            self.fail("after the write")
        if way == "constraint":
            StepRun.objects.create(execution_id="00000000-0000-7000-8000-000000000000", step="unheard", kind="step")
        if way == "broken":
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM tests_live_no_such_table")


WAYS: dict[str, str] = {}
"""How the next cleanup of a name ends."""


class Unposts(Named):
    key = Input(str)
    way = Input(str, default="")
    cleanup = Input(str, default="")
    post = step(Unpost)
    behind = step(Work, after=post)


@pytest.mark.parametrize("kind", ["undo", "compensate"])
@pytest.mark.parametrize("ends", ["raise", "return", "constraint", "broken"])
def test_u118_a_cleanup_of_an_atomic_step_that_fails_leaves_none_of_its_writes(
    ends: str, kind: str, recorder: Recorder, reactor_dispatches: Any
) -> None:
    WAYS["it"] = ends
    outcome = Unposts.run(key="k", way="raise" if kind == "compensate" else "", cleanup="it", fail_at="behind")
    kept = 1 if kind == "undo" else 0
    assert [each.step for each in failure(outcome).rollback_failures] == ["post"]
    assert Posting.objects.filter(amount=-1).count() == 0
    assert Posting.objects.filter(amount=1).count() == kept
    assert not StepRun.objects.filter(step="unheard").exists()
    testing.assert_free("k")
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert all(each.notes["in_transaction"] for each in recorder.entries() if each.label == "clean")
    assert Posting.objects.filter(amount=-1).count() == 1
    assert runs(outcome)["post"].rollback_failure is None


def test_a_halt_is_one_transaction_with_the_end(recorder: Recorder, reactor_dispatches: Any) -> None:
    """Were the halting step and the end two, a worker killed in between would go on behind the halt."""
    from reactor_coord.runtime import deliver

    class Stop(Step):
        def run(self) -> None:
            self.halt(reason="enough")

    class Halting(Named):
        a = step(Work)
        stop = step(Stop, after=a)
        never = step(Work, after=stop)

    handle = Halting.enqueue()
    with faults.installed({"checkpoint.after": {"action": "raise", "error": "builtins.SystemExit", "skip": 1}}):
        with pytest.raises(SystemExit):
            deliver(str(handle.id), "killed")
    testing.drain(timeout=5)
    assert handle.status == "halted"
    assert recorder.sequence() == ["run a"]


def test_no_transaction_is_open_while_a_plain_body_runs(reactor_dispatches: Any) -> None:
    open_in: list[bool] = []

    class Looking(Named):
        key = Input(str)

        @step(key=key)
        @with_lock("{key}", ttl=5)
        def look(key: str) -> None:
            open_in.append(connection.in_atomic_block)

        @look.undo
        def _(result: None) -> None:
            open_in.append(connection.in_atomic_block)

        behind = step(Work, after=look)

    Looking.run(key="k", fail_at="behind")
    Looking.enqueue(key="k", fail_at="behind")
    testing.drain(timeout=5)
    assert open_in == [False] * 4


def test_a_coordinated_run_inside_a_transaction_is_refused(recorder: Recorder) -> None:
    with transaction.atomic(), pytest.raises(NotRunnable, match="atomic"):
        Single.run(key="k")
    assert Execution.objects.count() == 0
    assert recorder.sequence() == []


def test_its_author_may_allow_it(recorder: Recorder) -> None:
    with transaction.atomic():
        assert Single.options(allow_in_atomic=True).run(key="k").succeeded

    class Allowed(Single):
        allow_in_atomic = True

    with transaction.atomic():
        assert Allowed.run(key="k").succeeded


def test_an_uncoordinated_run_inside_a_transaction_is_allowed() -> None:
    class Plain(Named):
        a = step(Work)

    with transaction.atomic():
        assert Plain.run().succeeded


@pytest.mark.django_db(transaction=False)
def test_the_transaction_of_a_test_case_does_not_count(recorder: Recorder) -> None:
    assert connection.in_atomic_block
    assert Single.run(key="k").succeeded
    with transaction.atomic(), pytest.raises(NotRunnable):
        Single.run(key="k")


def test_a_wait_that_cannot_end_says_why(reactor_dispatches: Any) -> None:
    with transaction.atomic():
        handle = Single.enqueue(key="k")
        with pytest.raises(TimeoutError, match="when the transaction that is open here commits"):
            handle.wait(timeout=0)
    with pytest.raises(TimeoutError, match="no worker has begun it"):
        handle.wait(timeout=0)


def test_b168_a_start_inside_a_transaction_is_sent_after_its_commit(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with transaction.atomic():
        handle = Single.enqueue(key="k")
        assert reactor_dispatches.ids == []
        with transaction.atomic():
            inner = Single.enqueue(key="k2")
        assert reactor_dispatches.ids == []
    assert reactor_dispatches.ids == [str(handle.id), str(inner.id)]
    testing.drain()
    assert handle.status == inner.status == "completed"


@pytest.mark.parametrize("keyed", [True, False])
def test_b169_a_start_that_is_rolled_back_leaves_nothing(
    keyed: bool, reactor_dispatches: Any, reactor_prefix: str, settings: Any
) -> None:
    redis = client(str(settings.CACHES["default"]["LOCATION"]))
    before = set(redis.scan_iter(f"{reactor_prefix}:*"))
    start = Single.options(idempotency_key="once") if keyed else Single.options()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        start.enqueue(key="k")
        raise ZeroDivisionError
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            start.enqueue(key="k")
            raise ZeroDivisionError
    assert Execution.objects.count() == 0
    assert TraceEvent.objects.count() == 0
    assert reactor_dispatches.ids == []
    assert set(redis.scan_iter(f"{reactor_prefix}:*")) == before
    assert start.enqueue(key="k").created


def test_the_same_idempotency_key_is_one_execution(reactor_dispatches: Any, recorder: Recorder) -> None:
    first = Single.options(idempotency_key="once").enqueue(key="k")
    second = Single.options(idempotency_key="once").enqueue(key="k")
    assert (first.id, first.created, second.created) == (second.id, True, False)
    testing.drain()
    outcome = Single.options(idempotency_key="once").run(key="k")
    assert outcome.execution.pk == first.id
    assert outcome.succeeded
    assert recorder.count("run charge") == 1


def test_starts_with_one_idempotency_key_at_once_are_one_execution(reactor_dispatches: Any, recorder: Recorder) -> None:
    once = Patient.options(idempotency_key="once")
    outcomes = at_once(*[partial(once.run, key="k", seconds=0.1) for _ in range(6)])
    assert len({outcome.execution.pk for outcome in outcomes}) == 1
    assert {outcome.status for outcome in outcomes} <= {"running", "completed"}
    assert recorder.count("run charge") == 1
    handles = at_once(*[partial(Patient.options(idempotency_key="twice").enqueue, key="k") for _ in range(6)])
    assert sum(handle.created for handle in handles) == 1
    assert len(reactor_dispatches.ids) == 1


def test_an_atomic_step_whose_lock_was_lost_commits_nothing(recorder: Recorder) -> None:
    @with_lock("{key}", ttl=0.3, auto_extend=False)
    class Late(Step):
        key = Input(str)
        atomic = True

        def run(self) -> None:
            Posting.objects.create(account=self.key, amount=1, execution="")
            eventually(lambda: inspect.look(self.key).hold is None)

    class Losing(Reactor):
        key = Input(str)
        late = step(Late)

    assert failure(Losing.run(key="k")).error_type == "LockLost"
    assert Posting.objects.count() == 0
    with pytest.raises(LockLost):
        Late.call(key="k")
    assert Posting.objects.count() == 0


def test_an_atomic_step_in_a_worker_parks_without_a_trace_of_its_body(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k"):
        handle = Posts.enqueue(key="k")
        testing.drain()
        assert handle.status == "parked"
        assert Posting.objects.count() == 0
    testing.drain(timeout=5)
    assert handle.status == "completed"
    assert Posting.objects.count() == 1
    assert [event.kind for event in trace(handle, "step_failed")] == []
    assert row(handle).park_kind == ""


def test_the_waiting_one_sees_what_the_one_before_committed(recorder: Recorder) -> None:
    one = Background(lambda: Patient.run(key="k", seconds=0.2))
    recorder.wait_for("run charge")
    assert Posts.run(key="k").succeeded
    assert one.result().succeeded
