"""Composed children: what their rows say at every moment, what is held around them, and what a lost hold means above."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, compose, step, testing, with_lock
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, eventually, failure, row, runs, told
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


def _statuses(of: Any) -> dict[str, str]:
    """By label, of the whole tree."""
    rows = Execution.objects.filter(root_id=of.execution.root_id)
    return {found.label: found.status for found in rows}


class Ends(Step):
    """Says how its own execution's row stands, then ends as told."""

    way = Input(str, default="")

    def run(self) -> Any:
        status = Execution.objects.get(pk=self.context.execution_id).status
        current().mark("child is", status=status)
        if self.way == "halt":
            self.halt("half-way", reason="enough")
        if self.way == "fail":
            self.fail("no", retryable=False)
        return status


class Child(Named):
    key = Input(str)
    way = Input(str, default="")
    charge = step(LockedWork)
    ends = step(Ends, after=charge)


class Parent(Named):
    key = Input(str)
    way = Input(str, default="")
    a = step(Work)
    child = compose(Child, after=a)
    z = step(Work, after=child)


@pytest.mark.parametrize("way, status", [("", "completed"), ("halt", "halted"), ("fail", "failed")])
@pytest.mark.parametrize("parked", [True, False])
def test_a_childs_row_says_what_its_root_says(
    way: str, status: str, parked: bool, reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = Parent.enqueue(key="k", way=way)
    if parked:
        with testing.hold("k"):
            testing.drain()
            assert _statuses(handle) == {"Parent": "parked", "Child": "parked"}
            assert runs(handle)["child"].status == "running"
    testing.drain(timeout=5)
    assert _statuses(handle) == {"Parent": status, "Child": status}
    (seen,) = [entry.notes["status"] for entry in recorder.entries() if entry.label == "child is"]
    assert seen == "running"  # from the first checkpoint after it was taken up again
    assert not {run.status for run in runs(handle).values()} & {"running", "waiting", "retrying"}


def test_a_halt_in_a_child_can_be_undone_by_an_operator(reactor_dispatches: Any, recorder: Recorder) -> None:
    outcome = Parent.run(key="k", way="halt")
    assert outcome.halted
    assert (outcome.value, outcome.reason) == ("half-way", "enough")
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence() == ["run a", "run charge", "child is", "undo charge", "undo a"]
    assert row(outcome).status == "reverted"


def test_an_interrupted_child_is_aborted_like_its_root(recorder: Recorder) -> None:
    class Leaves(Step):
        def run(self) -> None:
            raise KeyboardInterrupt

    class Inner(Named):
        leaves = step(Leaves)

    class Surrounding(Named):
        a = step(Work)
        inner = compose(Inner, after=a)

    with pytest.raises(KeyboardInterrupt):
        Surrounding.run()
    assert {found.status for found in Execution.objects.all()} == {"aborted"}


@with_lock("whole:{key}", ttl=0.4, auto_extend=False, rollback_wait=0.2)
class Unkept(Named):
    """Its own lock lapses in the middle."""

    key = Input(str)
    a = step(Work)

    @step(key=key, after=a)
    def outlive(key: str) -> None:
        eventually(lambda: inspect.look(f"whole:{key}").hold is None)
        current().mark("lapsed")
        eventually(lambda: current().count("go on"))

    z = step(Work, after=outlive)


def test_a_lost_lock_of_the_reactor_is_taken_anew_for_its_rollback(recorder: Recorder) -> None:
    running = Background(lambda: Unkept.run(key="k"))
    recorder.wait_for("lapsed")
    recorder.mark("go on")
    outcome = running.result()
    assert failure(outcome).error_type == "LockLost"
    assert recorder.sequence() == ["run a", "lapsed", "go on", "undo a"]
    assert failure(outcome).rollback_failures == ()
    acquired = told(outcome, "acquired")
    assert acquired == [("acquired", "", "whole:k")] * 2
    testing.assert_free("whole:k")


def test_a_lost_lock_of_the_reactor_that_another_has_leaves_its_undos_listed(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    running = Background(lambda: Unkept.run(key="k"))
    recorder.wait_for("lapsed")
    with testing.hold("whole:k"):
        recorder.mark("go on")
        outcome = running.result()
        testing.assert_locked("whole:k")
    assert failure(outcome).error_type == "LockLost"
    assert [(left.step, left.key) for left in failure(outcome).rollback_failures] == [("a", "whole:k")]
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[-1] == "undo a"
    assert row(outcome).reason == ""


def test_a_lost_lock_is_told_once(recorder: Recorder) -> None:
    @with_lock("whole", ttl=0.2, auto_extend=False, on_lost="warn")
    class Warned(Named):
        a = step(Work, seconds=0.4)
        b = step(Work, after=a)
        c = step(Work, after=b)

    outcome = Warned.run()
    assert outcome.succeeded
    assert told(outcome, "lock_lost") == [("lock_lost", "", "whole")]


def test_on_contention_skip_and_fail(reactor_dispatches: Any, recorder: Recorder) -> None:
    class Skipping(Named):
        a = step(Work)
        charge = step(Work, after=a, coordination=[with_lock("k", ttl=5, wait=5, on_contention="skip")])
        z = step(Work, after=charge)

    class Failing(Named):
        a = step(Work)
        charge = step(Work, after=a, coordination=[with_lock("k", ttl=5, wait=5, on_contention="fail")])
        z = step(Work, after=charge)

    with testing.hold("k") as held:
        for start in ("run", "enqueue"):
            begun = time.monotonic()
            skipped, failed = (getattr(reactor, start)() for reactor in (Skipping, Failing))
            testing.drain()
            assert time.monotonic() - begun < 3
            assert row(skipped).status == "completed"
            run = runs(skipped)["charge"]
            assert run.status == "skipped"
            assert "k" in run.reason and held.owner in run.reason
            assert row(failed).status == "failed"
            assert told(failed, "parked") == []
    assert recorder.count("run charge") == 0


def test_b010_waiting_in_a_worker_gives_up_as_declared(reactor_dispatches: Any, recorder: Recorder) -> None:
    @with_lock("k", ttl=5, wait=0.3, on_contention="wait")
    class Waits(Work):
        pass

    class Waiting(Named):
        charge = step(Waits)

    with testing.hold("k"):
        handle = Waiting.enqueue()
        testing.drain()
    found = row(handle)
    assert found.status == "failed"
    assert found.failure is not None
    assert (found.failure["error_type"], found.failure["step"]) == ("LockContended", "charge")
    assert "'k'" in found.failure["message"]
    assert recorder.sequence() == []


def test_what_needs_a_skipped_value_reads_none() -> None:
    class Typed(Step):
        number = Input(int, required=False)
        deep = Input(str, default="fallback")

        def run(self) -> list[Any]:
            return [self.number, self.deep]

    class Skips(Named):
        a = step(Work, where=lambda name: False)
        b = step(Typed, number=a["number"], deep=a["x"]["y"].map(str.upper))

        @step(whole=a, part=a["number"], mapped=a.map(len))
        def c(whole: Any, part: Any, mapped: Any) -> list[Any]:
            return [whole, part, mapped]

    outcome = Skips.run()
    assert outcome.succeeded, outcome.failure
    assert outcome.results["c"] == [None, None, None]
    assert outcome.results["b"][0] is None


def test_a_redacted_value_in_a_key_is_never_shown(recorder: Recorder) -> None:
    @with_lock("token:{token}", ttl=5)
    class Secret(Step):
        token = Input(str, redact=True)

        def run(self) -> list[str]:
            return [key for _, key in self.context.holds]

    class Keyed(Reactor):
        token = Input(str, redact=True)
        use = step(Secret)

    outcome = Keyed.run(token="tok_verysecret")
    assert outcome.succeeded
    (key,) = outcome.results["use"]
    assert key.startswith("token:#")
    with testing.hold(key):
        contended = Keyed.run(token="tok_verysecret")
    assert "tok_verysecret" not in failure(contended).message
    assert told(contended, "refused") == [("refused", "use", key)]


def test_a_composed_step_with_retry_starts_its_child_afresh(recorder: Recorder) -> None:
    """seq_17."""
    from reactor_coord import Retry

    class Flaky(Named):
        c1 = step(Work)

        @step(after=c1)
        def c2() -> None:
            current().mark("run c2")
            if current().count("run c2") == 1:
                raise ConnectionError("once")

        @c2.compensate
        def _() -> None:
            current().mark("comp c2")

    class Retrying(Named):
        a = step(Work)
        child = compose(Flaky, after=a, retry=Retry(max_attempts=2, base_delay=0.01))

    outcome = Retrying.run()
    assert recorder.sequence() == ["run a", "run c1", "run c2", "comp c2", "undo c1", "run c1", "run c2"]
    assert outcome.succeeded
