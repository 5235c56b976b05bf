"""Interrupts: a pause frees the reactor's holds, an answer counts once, a timeout fires by itself."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from django.db import connections
from django.utils import timezone

from reactor_coord import (
    DefinitionError,
    Input,
    InputValidationError,
    Reactor,
    async_reactor,
    compose,
    interrupt,
    map_each,
    step,
    testing,
    with_lock,
)
from reactor_coord.engine.states import EventKind
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.storage import store
from reactor_coord.testing import faults
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import Background
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5)
class Reviewed(Named):
    """a, a question, c, under the reactor's lock."""

    key = Input(str)

    a = step(Work)
    review = interrupt(correlation_id=key.map("order-{}".format), payload={"approved": bool, "note": str}, after=a)

    @step(decision=review)
    def decide(decision: dict[str, object]) -> object:
        return decision["approved"]

    c = step(Work, after=decide)

    returns = decide


class Hurried(Named):
    """A question with little time."""

    a = step(Work)
    review = interrupt(timeout=dt.timedelta(seconds=0.2), after=a)
    c = step(Work, after=review)


class Inner(Named):
    """A question in a child."""

    i = step(Work)
    ask = interrupt(correlation_id="inner", after=i)


class AsksBelow(Named):
    """The question is one level down."""

    a = step(Work)
    inner = compose(Inner, after=a)
    c = step(Work, after=inner)


class Asking(Reactor):
    """For a map's elements."""

    number = Input(int)
    ask = interrupt()


class AsksDeeper(Reactor):
    """Its question is in a composed reactor."""

    number = Input(int)
    asking = compose(Asking)


def lapse_leases() -> None:
    """As if every worker had died a minute ago."""
    Execution.objects.exclude(lease_token="").update(lease_expires_at=timezone.now() - dt.timedelta(seconds=5))


def kinds(execution: Execution) -> list[tuple[str, str]]:
    rows = TraceEvent.objects.filter(root_id=execution.id).order_by("at", "id")
    wanted = {"acquired", "released", "parked", "step_succeeded", "undone", "compensated"}
    return [(row.kind, row.step) for row in rows if row.kind in wanted]


def test_seq_11_holds_are_given_back_over_a_pause_and_taken_anew(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = Reviewed.run(key="7", fail_at="c")
    assert outcome.paused
    testing.assert_free("7")
    with testing.hold("7"):
        pass
    Reviewed.resume("order-7", step="review", payload={"approved": True, "note": ""})
    testing.drain()
    assert recorder.sequence() == ["run a", "run c", "comp c", "undo a"]
    told = [kind for kind, _ in kinds(outcome.execution) if kind in {"acquired", "released", "parked"}]
    assert told == ["acquired", "parked", "released", "acquired", "released"]


def test_an_answer_is_the_steps_value(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Reviewed.enqueue(key="8")
    testing.drain()
    assert handle.status == "paused"
    with pytest.raises(InputValidationError) as caught:
        Reviewed.resume("order-8", payload={"approved": "perhaps", "note": ""})
    assert "approved" in caught.value.fields
    assert handle.status == "paused"
    Reviewed.resume("order-8", payload={"approved": True, "note": "fine"})
    testing.drain()
    assert handle.wait(1).value is True


def test_b136_a_second_answer_is_refused_and_says_so(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    Reviewed.enqueue(key="9")
    testing.drain()
    Reviewed.resume("order-9", payload={"approved": True, "note": ""})
    with pytest.raises(ExecutionConflict, match="order-9"):
        Reviewed.resume("order-9", payload={"approved": False, "note": ""})
    testing.drain()
    assert recorder.count("run c") == 1


def test_d125_of_two_answers_at_once_exactly_one_counts(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    for round_number in range(10):
        Reviewed.enqueue(key=f"r{round_number}")
        testing.drain()
        accepted: list[bool] = []

        def say(approved: bool, name: str = f"order-r{round_number}", into: list[bool] = accepted) -> None:
            from django.db import connection

            try:
                Reviewed.resume(name, payload={"approved": approved, "note": ""})
                into.append(approved)
            except ExecutionConflict:
                pass
            finally:
                connection.close()

        threads = [threading.Thread(target=say, args=(approved,)) for approved in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) == 1
    testing.drain()
    assert recorder.count("run c") == 10


def test_h1_a_timeout_fires_by_itself(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    from reactor_coord.workers.sweep import sweep_once

    handle = Hurried.enqueue()
    testing.drain()
    assert handle.status == "paused"
    recorder.wait_until(lambda: sweep_once().sent > 0, "the end of the pause")
    testing.drain()
    outcome = handle.wait(1)
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("review", "TimeoutError")
    assert recorder.sequence() == ["run a", "undo a"]
    with pytest.raises(ExecutionConflict):
        Hurried.resume(str(handle.id), payload=None)


def test_d130_d132_a_question_in_a_child_pauses_the_root(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    outcome = AsksBelow.run()
    assert outcome.paused
    handle = AsksBelow.resume("inner", payload={"any": "thing"})
    assert handle.id == outcome.execution.id
    testing.drain()
    assert recorder.sequence() == ["run a", "run i", "run c"]
    with pytest.raises(ExecutionConflict):
        Inner.resume("inner", payload=None)


@pytest.mark.parametrize(("element", "path"), [(Asking, "ask"), (AsksDeeper, "asking.ask")])
def test_d135_and_u132_a_question_in_an_element_is_refused_at_import(element: type[Reactor], path: str) -> None:
    words = rf"step 'mapped' of Asks: map_each\({element.__name__}, \.\.\.\) has the interrupt '{path}' in it.*Ask before the map"
    with pytest.raises(DefinitionError, match=words):
        type("Asks", (Reactor,), {"mapped": map_each(element, over=[1], number=1)})


def test_u132_an_element_may_hand_off_work_that_asks(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    """It is an execution of its own, and pauses alone."""

    class HandsOff(Reactor):
        number = Input(int)
        asking = async_reactor(Asking)

    class Asks(Reactor):
        mapped = map_each(HandsOff, over=[1], number=1)

    assert Asks.definition.step("mapped").kind == "map"


def test_h10_two_questions_under_one_name_are_not_asked(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    first = Reviewed.enqueue(key="same", name="first")
    testing.drain()
    assert first.status == "paused"
    second = Reviewed.enqueue(key="same", name="second")
    testing.drain()
    assert second.wait(1).failed
    assert first.status == "paused"


def test_a_paused_execution_is_cancelled_and_undone(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Reviewed.enqueue(key="10")
    testing.drain()
    handle.cancel("no longer wanted")
    testing.drain()
    assert handle.status == "cancelled"
    assert recorder.sequence() == ["run a", "undo a"]


def test_operators_answer_by_the_execution(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Reviewed.enqueue(key="11")
    testing.drain()
    handle.execution.resume(payload={"approved": False, "note": "no"})
    testing.drain()
    assert handle.wait(1).value is False


def test_an_answer_that_meets_a_run_taken_up_in_vain_is_not_refused(reactor_dispatches: Dispatches) -> None:
    """A message too many makes a paused execution ready for a moment; it finds its question open and pauses again."""
    handle = Reviewed.enqueue(name="x", key="stray")
    testing.drain()
    assert handle.status == "paused"
    Execution.objects.filter(pk=handle.id).update(status="ready")

    def take_up() -> None:
        testing.drain()
        connections.close_all()

    again = threading.Timer(0.2, take_up)
    again.start()
    try:
        Reviewed.resume("order-stray", step="review", payload={"approved": True, "note": ""})
    finally:
        again.join()
    testing.drain()
    assert handle.wait(timeout=1).value is True


@pytest.mark.parametrize("begun", ["enqueue", "run"])
def test_u51_an_answer_is_taken_though_the_worker_that_looked_at_the_question_has_died(
    begun: str, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    started = Reviewed.enqueue(key="dead").execution if begun == "enqueue" else Reviewed.run(key="dead").execution
    testing.drain()
    Execution.objects.filter(pk=started.id).update(status="ready")  # a message too many
    assert store.claim(started.id, worker="a dead one") is not None
    Reviewed.resume("order-dead", step="review", payload={"approved": True, "note": ""})
    with pytest.raises(ExecutionConflict, match="it was answered"):
        Reviewed.resume("order-dead", payload={"approved": False, "note": ""})
    testing.drain()
    assert Execution.objects.get(pk=started.id).status == "running"
    lapse_leases()
    sweep_once()
    testing.drain()
    found = Execution.objects.get(pk=started.id)
    assert (found.status, found.result) == ("completed", True)
    assert recorder.count("run a") == recorder.count("run c") == 1
    assert TraceEvent.objects.filter(root_id=started.id, kind=EventKind.OPERATOR).count() == 1


def test_an_answer_left_while_a_living_worker_looks_is_not_overwritten(reactor_dispatches: Dispatches) -> None:
    handle = Reviewed.enqueue(key="slow")
    testing.drain()
    Execution.objects.filter(pk=handle.id).update(status="ready")
    with faults.installed({"step.after_take": {"action": "gate"}}):
        looking = Background(testing.drain)
        faults.wait_reached("step.after_take")
        answering = Background(
            lambda: Reviewed.resume("order-slow", step="review", payload={"approved": True, "note": ""})
        )
        answering.result()
        faults.open_gate("step.after_take")
        looking.result()
    testing.drain()
    assert handle.wait(timeout=1).value is True


def test_an_answer_is_not_left_where_a_worker_may_count_a_death_to_the_question(reactor_dispatches: Dispatches) -> None:
    """It writes the question's row then, as it read it."""
    handle = Reviewed.enqueue(key="counted")
    testing.drain()
    Execution.objects.filter(pk=handle.id).update(status="ready", workers_lost=1)
    assert store.claim(handle.id, worker="one that reads") is not None
    with pytest.raises(ExecutionConflict, match="answer again"):
        Reviewed.resume("order-counted", payload={"approved": True, "note": ""})
    lapse_leases()
    sweep_once()
    Reviewed.resume("order-counted", payload={"approved": True, "note": ""})
    testing.drain()
    assert handle.wait(timeout=1).value is True


def test_a_question_whose_time_runs_out_under_a_dead_worker_says_so(reactor_dispatches: Dispatches) -> None:
    class Brief(Named):
        a = step(Work)
        ask = interrupt(correlation_id="brief", timeout=dt.timedelta(seconds=1.5), after=a)

    handle = Brief.enqueue()
    testing.drain()
    Execution.objects.filter(pk=handle.id).update(status="ready")
    assert store.claim(handle.id, worker="a dead one") is not None
    with pytest.raises(ExecutionConflict, match="answer again"):
        Brief.resume("brief", payload={})
    lapse_leases()
    sweep_once()
    testing.drain()
    assert handle.status == "failed"


class Secretive(Named):
    """A question whose answer has a field that must not be shown."""

    ask = interrupt(correlation_id="secretive", payload={"pin": Input(str, redact=True), "note": str})

    @step(answer=ask)
    def use(answer: dict[str, str]) -> int:
        return len(answer["pin"])


def test_b200_a_redacted_answer_is_marked_where_it_is_kept_and_where_it_is_read(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    from reactor_coord.storage import codec

    handle = Secretive.enqueue()
    testing.drain()
    handle.execution.resume(payload={"pin": "917-secret", "note": "fine"})
    testing.drain()
    assert handle.wait(1).value == 10
    runs = {run.step: run for run in handle.execution.step_runs.all()}
    assert "917-secret" not in str(codec.display(runs["ask"].result))
    assert "917-secret" not in str(codec.display(runs["use"].arguments))
