"""A reactor that a body runs, or a step that it calls, belongs to that body's execution, as far as coordination goes."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
from django.db import connections

from reactor_coord import (
    Context,
    Input,
    Reactor,
    Step,
    interrupt,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from reactor_coord.errors import NotRunnable
from reactor_coord.models import Execution
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import failure
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

HOLDS = {
    "lock": with_lock("{key}", ttl=5),
    "semaphore": with_semaphore("{key}", limit=1, ttl=5),
    "ordered_lock": with_ordered_lock("{key}", poison_pill_timeout=600),
}


def inner_of(primitive: str, where: str) -> Any:
    """A reactor that needs the key, around itself or at its step."""
    if where == "reactor":

        @HOLDS[primitive]
        class Around(Named):
            key = Input(str)
            work = step(Work)

        return Around

    class AtStep(Named):
        key = Input(str)

        @step(key=key)
        @HOLDS[primitive]
        def work(key: str, context: Context) -> None:
            current().mark("run work")

    return AtStep


def outer_of(primitive: str, inner: Any) -> Any:
    """A reactor whose body has the key and runs the other."""

    class Outer(Named):
        key = Input(str)

        @step(key=key)
        @HOLDS[primitive]
        def body(key: str, context: Context) -> str:
            outcome = inner.run(key=key)
            current().mark(f"inner {outcome.status}")
            return str(outcome.execution.id)

        behind = step(Work, after=body)

    return Outer


@pytest.mark.parametrize("way", ["run", "enqueue"])
@pytest.mark.parametrize("where", ["reactor", "step"])
@pytest.mark.parametrize("primitive", HOLDS)
def test_u88_a_run_in_a_body_relies_on_what_its_execution_holds(
    primitive: str, where: str, way: str, recorder: Recorder, reactor_dispatches: Any
) -> None:
    outer = outer_of(primitive, inner_of(primitive, where))
    if way == "run":
        assert outer.run(key="k").succeeded
    else:
        handle = outer.enqueue(key="k")
        testing.drain()
        assert handle.status == "completed", handle.execution.failure
    assert recorder.sequence() == ["run work", "inner completed", "run behind"]
    testing.assert_free("k")


def test_u88_its_row_is_its_own_and_names_the_step(recorder: Recorder) -> None:
    outer = outer_of("lock", inner_of("lock", "step"))
    outcome = outer.run(key="k", fail_at="behind")
    assert failure(outcome).step == "behind"
    (inner,) = Execution.objects.exclude(pk=outcome.execution.pk)
    assert inner.is_root and inner.status == "completed", "the rollback of the outer one undoes nothing of it"
    assert inner.tags == {"run_by": str(outcome.execution.pk), "run_at": "Outer.body"}
    (told,) = outcome.execution.trace.filter(kind="ran_reactor")
    assert (told.step, told.data) == ("body", {"ran": "AtStep", "ran_id": str(inner.pk)})


def test_u88_what_it_relied_on_is_still_the_outer_ones_afterwards(recorder: Recorder) -> None:
    inner = inner_of("lock", "step")
    seen: list[Any] = []

    class Outer(Named):
        @step()
        @with_lock("k", ttl=5)
        def body(context: Context) -> None:
            before = inspect.look("k").hold
            assert inner.run(key="k").succeeded
            seen.extend([before, inspect.look("k").hold])

    assert Outer.run().succeeded
    before, after = seen
    assert (before.owner, before.fence) == (after.owner, after.fence)
    testing.assert_free("k")


def test_u88_another_key_is_contended_for(recorder: Recorder) -> None:
    inner = inner_of("lock", "step")

    class Outer(Named):
        @step()
        @with_lock("k", ttl=5)
        def body(context: Context) -> str:
            outcome = inner.run(key="other")
            return outcome.failure.error_type if outcome.failed else "it ran"

        returns = body

    with testing.hold("other"):
        assert Outer.run().value == "LockContended"
    assert Outer.run().value == "it ran"


def test_u88_threads_of_one_body_contend_with_each_other(recorder: Recorder) -> None:
    @with_lock("{key}", ttl=5, wait=10)
    class Slow(Work):
        key = Input(str)

    class Inner(Named):
        key = Input(str)
        seconds = Input(float, default=0.05)
        slow = step(Slow)

    class Outer(Named):
        @step()
        @with_lock("k", ttl=5)
        def body(context: Context) -> list[str]:
            found: list[str] = []

            def one() -> None:
                try:
                    found.append(str(Inner.run(key="k").status))
                finally:
                    connections.close_all()

            threads = [threading.Thread(target=contextvars.copy_context().run, args=(one,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return found

        returns = body

    assert Outer.run().value == ["completed"] * 4
    assert recorder.max_concurrency("run slow") == 1


def test_u88_what_goes_on_without_the_body_is_refused(recorder: Recorder) -> None:
    class Asks(Named):
        question = interrupt()

    class InBackground(Named):
        a = step(Work)
        b = step(Work, after=a)
        background_after = a

    for inner in (Asks, InBackground):

        class Outer(Named):
            @step()
            def body(context: Context) -> None:
                with pytest.raises(NotRunnable, match=r"would go on when the body has ended"):
                    inner.run()  # noqa: B023 - run at once

        assert Outer.run().succeeded


def test_u88_an_independent_run_contends_and_does_not_wait_for_its_own_body(recorder: Recorder) -> None:
    @with_lock("{key}", ttl=5, wait=30)
    class Patient(Named):
        key = Input(str)
        work = step(Work)

    class Outer(Named):
        @step()
        @with_lock("k", ttl=5)
        def body(context: Context) -> None:
            outcome = Patient.options(independent=True).run(key="k")
            assert outcome.failure is not None and outcome.failure.error_type == "LockContended"
            assert "would wait for itself" in outcome.failure.message
            assert Patient.options(independent=True).run(key="free").succeeded

    outcome = Outer.run()
    assert outcome.succeeded, outcome.failure


def test_u88_an_independent_run_has_another_slot_of_what_its_body_has(recorder: Recorder) -> None:
    slots = with_semaphore("k", limit=2, ttl=5)

    @slots
    class Inner(Named):
        work = step(Work)

    class Outer(Named):
        @step()
        @slots
        def body(context: Context) -> None:
            assert Inner.options(independent=True).run().succeeded

    outcome = Outer.run()
    assert outcome.succeeded, outcome.failure


def test_u88_a_call_in_a_body_is_inside_without_being_told(recorder: Recorder) -> None:
    @with_lock("k", ttl=5)
    class Halts(Step):
        def run(self) -> None:
            self.halt(reason="enough")

    class Outer(Reactor):
        @step()
        @with_lock("k", ttl=5)
        def body() -> None:
            Halts.call()

        never = step(Work, after=body)

    outcome = Outer.run()
    assert (outcome.status, outcome.execution.reason) == ("halted", "enough")


def test_u88_a_lost_hold_lets_no_body_inside_begin(recorder: Recorder) -> None:
    inner = inner_of("lock", "step")

    class Outer(Named):
        @step()
        @with_lock("k", ttl=5)
        def body(context: Context) -> None:
            from reactor_coord.coordination.process import primitives

            hold = inspect.look("k").hold
            assert hold is not None
            primitives().locks.release_by_force("k", fence=hold.fence)
            for each in context.tree.holds:  # type: ignore[attr-defined]
                each.gate.check(each)
            outcome = inner.run(key="k")
            assert outcome.failure is not None and outcome.failure.error_type == "LockLost"

    outcome = Outer.run()
    assert failure(outcome).error_type == "LockLost"
    assert recorder.sequence() == []


def test_u88_inside_an_open_transaction_it_is_refused_as_anywhere(recorder: Recorder) -> None:
    """The rows of a run that the outer transaction takes back would be forgotten, with what its bodies did."""
    inner = inner_of("lock", "step")

    class Outer(Named):
        @step(atomic=True)
        @with_lock("k", ttl=5)
        def body(context: Context) -> None:
            inner.run(key="k")

    outcome = Outer.run()
    assert failure(outcome).error_type == "NotRunnable" and "allow_in_atomic" in failure(outcome).message
    assert recorder.sequence() == [] and Execution.objects.count() == 1
