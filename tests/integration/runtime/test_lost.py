"""A hold that is lost while work goes on under it: told at once, with all there is to tell, and no other body begins under it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, connection

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    compose,
    map_each,
    probes,
    signals,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_semaphore,
)
from reactor_coord.coordination import inspect, ordered_lines
from reactor_coord.declare.context import Holds
from reactor_coord.errors import LockLost
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.operations import release_key
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, eventually, failure, told, trace

pytestmark = pytest.mark.django_db(transaction=True)

BRIEF = 1.5


def lose(holds: Holds, primitive: str = "lock", key: str = "k") -> None:
    """Take it away, and wait until this process knows."""
    view = holds[primitive, key]
    if primitive == "ordered_lock":
        line = ordered_lines().view(key)
        assert ordered_lines().skip(key, line.next) is not None
    else:
        assert release_key(key, fence=view.fencing_token, primitive=primitive)
    eventually(lambda: view.lost)


@contextmanager
def signalled() -> Iterator[list[dict[str, Any]]]:
    """What `hold_lost` tells, and on which thread."""
    heard: list[dict[str, Any]] = []

    def hear(**told: Any) -> None:
        heard.append({**told, "thread": threading.current_thread()})

    signals.hold_lost.connect(hear)
    try:
        yield heard
    finally:
        signals.hold_lost.disconnect(hear)


class Losing(Step):
    """Loses the hold named, and stays in its body until that was told."""

    primitive = Input(str, default="lock")
    retry = Retry(max_attempts=3, backoff="fixed", base_delay=0.01)

    def run(self) -> Any:
        current().mark("body")
        lose(self.context.holds, self.primitive)
        rows = TraceEvent.objects.filter(root_id=self.context.root_id, kind="lock_lost")
        eventually(lambda: rows.count() == 1)
        return list(TraceEvent.objects.filter(root_id=self.context.root_id).values_list("kind", flat=True))

    def compensate(self, error: BaseException) -> None:
        current().mark("compensate")


ALL = {
    "lock": with_lock("k", ttl=BRIEF),
    "semaphore": with_semaphore("k", limit=2, ttl=BRIEF),
    "ordered_lock": with_ordered_lock("k", poison_pill_timeout=1),
}


@pytest.mark.parametrize("primitive", list(ALL))
def test_u112_a_loss_is_a_row_and_a_signal_while_the_body_still_runs(primitive: str, recorder: Recorder) -> None:
    @ALL[primitive]
    class Own(Losing):
        retry = Retry(max_attempts=1)

    class Outer(Reactor):
        only = step(Own, primitive=primitive)

    with signalled() as heard:
        outcome = Outer.run()
    assert isinstance(failure(outcome).error, LockLost)
    (row,) = trace(outcome, "lock_lost")
    assert (row.execution_id, row.step, row.primitive, row.key) == (outcome.execution.pk, "only", primitive, "k")
    assert row.data["on_lost"] == "fail"
    assert row.data["fence"] > 0
    (signal,) = heard
    assert signal["thread"] is not threading.current_thread()
    assert (signal["reactor"], signal["step"], signal["primitive"], signal["key"], signal["execution"]) == (
        "Outer",
        "only",
        primitive,
        "k",
        str(outcome.execution.pk),
    )
    kinds = [row.kind for row in trace(outcome)]
    assert kinds.index("acquired") < kinds.index("lock_lost") < kinds.index("step_failed")


@pytest.mark.parametrize("primitive", list(ALL))
def test_u112_at_a_reactor_the_error_names_primitive_and_key(primitive: str, recorder: Recorder) -> None:
    class Inside(Reactor):
        only = step(Losing, primitive=primitive)

    ALL[primitive](Inside)
    outcome = Inside.run()
    error = failure(outcome).error
    assert (error.reactor, error.step, error.primitive, error.key) == ("Inside", "only", primitive, "k")
    assert told(outcome, "lock_lost") == [("lock_lost", "", "k")]


def test_u112_it_is_told_of_the_child_whose_hold_it_was_and_who_has_the_key_now(recorder: Recorder) -> None:
    is_over = threading.Event()

    def come_next() -> None:
        with testing.hold("k", wait=20):
            assert is_over.wait(20)

    class Overtaken(Step):
        def run(self) -> None:
            waiting.append(Background(come_next))
            eventually(lambda: inspect.line("k"))
            lose(self.context.holds)
            eventually(lambda: TraceEvent.objects.filter(kind="lock_lost").count() == 1)

    waiting: list[Background] = []

    @with_lock("k", ttl=BRIEF)
    class Child(Reactor):
        only = step(Overtaken)

    class Parent(Reactor):
        child = compose(Child)

    outcome = Parent.run()
    is_over.set()
    waiting[0].result()
    (row,) = trace(outcome, "lock_lost")
    assert row.execution_id == Execution.objects.get(label="Child").pk
    assert "testing.hold" in row.data["held_by"]
    assert "testing.hold" in failure(outcome).error.holder
    assert "testing.hold" in failure(outcome).message


class _Breaking(Step):
    """Loses its lock, then breaks its transaction at the very commit."""

    atomic = True
    breaks = Input(bool, default=False)

    def run(self) -> None:
        lose(self.context.holds)
        if self.breaks:
            with connection.cursor() as cursor:
                now = "now()" if connection.vendor == "postgresql" else "datetime('now')"
                cursor.execute(
                    "INSERT INTO reactor_coord_traceevent (root_id, execution_id, at, kind, step, primitive, key, data) "
                    f"VALUES ('{'0' * 32}', '{'0' * 32}', {now}, 'x', '', '', '', '{{}}')"
                )


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("on_lost", ["fail", "warn"])
def test_u112_in_an_atomic_step_it_is_one_row_whatever_is_taken_back(breaks: bool, on_lost: str) -> None:
    @with_lock("k", ttl=BRIEF, on_lost=on_lost)
    class Own(_Breaking):
        pass

    class Outer(Reactor):
        only = step(Own, breaks=breaks)

    outcome = Outer.run()
    assert outcome.succeeded is (on_lost == "warn" and not breaks)
    assert isinstance(outcome.failure.error if outcome.failure else None, (LockLost, IntegrityError, type(None)))
    assert len(trace(outcome, "lock_lost")) == 1
    assert len(trace(outcome, "acquired")) == 1


def test_u112_of_a_call_it_is_told_at_once_too() -> None:
    @with_lock("k", ttl=BRIEF)
    class Called(Step):
        def run(self) -> None:
            lose(self.context.holds)
            eventually(lambda: heard)

    with signalled() as heard, pytest.raises(LockLost) as caught:
        Called.call()
    (signal,) = heard
    assert (signal["step"], signal["primitive"], signal["key"]) == ("Called", "lock", "k")
    assert (caught.value.primitive, caught.value.key) == ("lock", "k")


# ---- no body begins


@pytest.mark.parametrize("primitive", list(ALL))
def test_u101_a_retry_does_not_run_the_body_again_when_the_reactors_hold_is_lost(
    primitive: str, recorder: Recorder
) -> None:
    class Outer(Reactor):
        only = step(Losing, primitive=primitive)

    ALL[primitive](Outer)
    outcome = Outer.run()
    assert isinstance(failure(outcome).error, LockLost)
    assert recorder.sequence() == ["body", "compensate"]


def test_u101_in_a_worker_neither(reactor_dispatches: Any, recorder: Recorder) -> None:
    @with_lock("k", ttl=BRIEF)
    class Outer(Reactor):
        only = step(Losing)

    handle = Outer.enqueue()
    testing.drain()
    assert (handle.execution.failure or {})["error_type"] == "LockLost"
    assert recorder.sequence() == ["body", "compensate"]


class _FailsAndLoses(Step):
    """Its own error stands; before its retry the reactor's hold is known to be lost."""

    retry = Retry(max_attempts=3, backoff="fixed", base_delay=0.01)

    def run(self) -> None:
        current().mark("body")
        lose(self.context.holds)
        raise ArithmeticError("mine")

    def compensate(self, error: BaseException) -> None:
        current().mark("compensate")


def test_u101_a_body_that_failed_by_itself_is_not_tried_again_either(recorder: Recorder) -> None:
    @with_lock("k", ttl=BRIEF)
    class Outer(Reactor):
        only = step(_FailsAndLoses)

    outcome = Outer.run()
    error = failure(outcome).error
    assert isinstance(error, LockLost)
    assert "before its body began" in str(error)
    assert recorder.sequence() == ["body", "compensate"]


def test_u101_a_steps_own_lost_hold_is_taken_again_by_its_retry(recorder: Recorder) -> None:
    class Once(Step):
        retry = Retry(max_attempts=2, backoff="fixed", base_delay=0.01)

        def run(self) -> int:
            if self.context.attempt == 1:
                lose(self.context.holds)
            return self.context.attempt

    with_lock("k", ttl=BRIEF)(Once)

    class Outer(Reactor):
        only = step(Once)

    assert Outer.run().unwrap() == 2


class _Marking(Step):
    item = Input(int, default=0)

    def run(self) -> None:
        current().mark("begun")


class _MarkingReactor(Reactor):
    only = step(_Marking)


NEXT: dict[str, Any] = {
    "step": lambda: step(_Marking),
    "compose": lambda: compose(_MarkingReactor),
    "map": lambda: map_each(_Marking, over=[1, 2]),
    "async": lambda: async_step(_Marking),
}


@pytest.mark.parametrize("on_lost", ["fail", "warn"])
@pytest.mark.parametrize("kind", list(NEXT))
def test_u101_what_is_lost_between_two_steps_lets_no_body_begin(
    kind: str, on_lost: str, reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step's checkpoint is written; then the key is taken away, and this process learns it."""
    holds: list[Holds] = []

    @with_lock("k", ttl=BRIEF, on_lost=on_lost)
    class Outer(Reactor):
        @step()
        def first(context: Any) -> None:
            holds.append(context.holds)

        second = NEXT[kind]()

    def reached(point: str) -> None:
        if point == "checkpoint.after" and holds:
            lose(holds.pop())

    monkeypatch.setattr(probes, "listener", reached)
    handle = Outer.enqueue()
    testing.drain()
    if on_lost == "warn":
        assert handle.status == "completed"
        assert recorder.count("begun") == (2 if kind == "map" else 1)
        return
    found = handle.execution.failure or {}
    assert (found["step"], found["error_type"]) == (kind if kind == "only" else "second", "LockLost")
    assert "Retry the execution" in found["message"]
    assert recorder.sequence() == []
    assert not Execution.objects.filter(parent=handle.execution).exists()


def test_u101_lost_while_the_step_waited_for_its_own_key_no_body_begins(recorder: Recorder) -> None:
    @with_lock("own", ttl=5, wait=10)
    class Patient(_Marking):
        pass

    holds: list[Holds] = []

    @with_lock("k", ttl=BRIEF)
    class Outer(Reactor):
        @step()
        def first(context: Any) -> None:
            holds.append(context.holds)

        second = step(Patient)

    with testing.hold("own") as own:

        def lose_then_let_go() -> None:
            eventually(lambda: inspect.line("own"))
            lose(holds[0])
            own.release()

        beside = Background(lose_then_let_go)
        outcome = Outer.run()
        beside.result()
    assert isinstance(failure(outcome).error, LockLost)
    assert (failure(outcome).step, recorder.sequence()) == ("second", [])
    testing.assert_free("own")


@pytest.mark.parametrize("on_lost", ["fail", "warn"])
def test_u101_a_call_in_a_body_does_not_begin_under_what_is_lost(on_lost: str, recorder: Recorder) -> None:
    @with_lock("k", ttl=BRIEF, on_lost=on_lost)
    class Outer(Reactor):
        @step()
        def only(context: Any) -> None:
            lose(context.holds)
            _Marking.call(context=context)

    outcome = Outer.run()
    assert recorder.count("begun") == (on_lost == "warn")
    if on_lost == "fail":
        assert isinstance(failure(outcome).error, LockLost)
        assert failure(outcome).error.step == "_Marking"


def test_what_was_lost_is_taken_again_for_the_rollback(recorder: Recorder) -> None:
    held: list[Any] = []

    @with_lock("k", ttl=BRIEF)
    class Outer(Reactor):
        @step()
        def first() -> None: ...

        @first.undo
        def _(result: Any, context: Any) -> None:
            held.append([(name, context.holds[name].lost) for name in context.holds])

        only = step(Losing, after=first)

    assert failure(Outer.run()).rollback_failures == ()
    assert held == [[(("lock", "k"), False)]]
