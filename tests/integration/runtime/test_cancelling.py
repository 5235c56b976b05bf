"""Cancelling what runs: who asked, and why, is said in the row, in the trace and in the signals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from reactor_coord import (
    ExecutionConflict,
    Input,
    Retry,
    async_reactor,
    compose,
    interrupt,
    step,
    testing,
    with_lock,
)
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.operations import verbs
from tests.integration.testing.shapes import LockedWork, Told, Work
from tests.support.events import heard_signals

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]


class CancelledInside(Told):
    """Its second step asks for the end of its own execution, as an operator does while it runs."""

    reasons = Input(list, default=["wrong order"])

    first = step(Work)

    @step(reasons=reasons, after=first)
    def asked(reasons: list[str]) -> None:
        for reason in reasons:
            verbs.cancel(Execution.objects.get(parent=None), reason=reason, actor="ada")

    behind = step(Work, after=asked)


class CancelledBelow(Told):
    """A composed child is running when the end is asked for."""

    inner = compose(CancelledInside)
    behind = step(Work, after=inner)


def _in_process(reactor: Any, **inputs: Any) -> Execution:
    return reactor.run(**inputs).execution  # type: ignore[no-any-return]


def _in_worker(reactor: Any, **inputs: Any) -> Execution:
    handle = reactor.enqueue(**inputs)
    testing.drain(timeout=20)
    return handle.execution  # type: ignore[no-any-return]


both = pytest.mark.parametrize("start", [_in_process, _in_worker], ids=["in process", "in a worker"])


@both
@pytest.mark.parametrize("reactor", [CancelledInside, CancelledBelow])
def test_u113_a_running_execution_keeps_why_it_was_cancelled_in_row_events_and_signals(
    start: Callable[..., Execution], reactor: Any
) -> None:
    with heard_signals() as heard:
        row = start(reactor)
    row.refresh_from_db()
    assert (row.status, row.reason, row.cancel_reason) == ("cancelled", "wrong order", "wrong order")
    kinds = ["cancel_requested", "rolling_back", "cancelled"]
    told = TraceEvent.objects.filter(execution=row.pk, kind__in=kinds).order_by("id")
    assert [(each.kind, each.data["reason"]) for each in told] == [(kind, "wrong order") for kind in kinds]
    signalled = [each for each in heard if each["kind"] in kinds]
    assert {(each["reactor"], each["sender"]) for each in signalled if each["execution"] == str(row.pk)} == {
        (reactor.__name__, reactor)
    }
    assert {each["event"].reason for each in signalled} == {"wrong order"}


def test_u113_an_undo_names_the_reactor_and_the_reason() -> None:
    row = _in_worker(CancelledInside, reasons=[])
    with heard_signals() as heard:
        verbs.undo(row, reason="refunded", actor="ada")
        testing.drain(timeout=20)
    told = [each for each in heard if each["kind"] in {"operator", "rolling_back", "reverted"}]
    assert [(each["kind"], each["reactor"], each["event"].reason) for each in told] == [
        (kind, "CancelledInside", "refunded") for kind in ("operator", "rolling_back", "reverted")
    ]


def test_a_second_request_without_a_reason_leaves_the_first_one_s() -> None:
    row = _in_worker(CancelledInside, reasons=["wrong order", ""])
    assert (row.status, row.reason) == ("cancelled", "wrong order")


class Standing(Told):
    """Its first step is done when it comes to a key, a retry or a question in a child, or to work on the side."""

    key = Input(str, default="acct:1")
    fail_at = Input(str, default="")

    first = step(Work)

    class Child(Told):
        """A step, and one that waits for the key."""

        key = Input(str)
        done = step(Work)
        waiting = step(LockedWork, after=done)

    child = compose(Child, after=first)


class StandsBeside(Told):
    """Its work on the side waits for the key, and so does its end."""

    key = Input(str, default="acct:1")
    first = step(Work)
    beside = async_reactor(Standing.Child, after=first)
    last = step(Work, after=beside)


class StandsAsking(Told):
    """A pause."""

    key = Input(str, default="order-7")
    first = step(Work)
    answer = interrupt(correlation_id=key, after=first)


@with_lock("{key}", ttl=5)
class StandsHolding(Told):
    """A pause for a retry, under a lock of the whole."""

    key = Input(str, default="acct:1")
    first = step(Work)
    again = step(Work, fail_at="again", retry=Retry(max_attempts=3, base_delay=30), after=first)


def _statuses(root: Execution) -> dict[str, str]:
    rows = StepRun.objects.filter(execution__in=Execution.objects.all())
    return {f"{each.execution.label}.{each.step}": each.status for each in rows.select_related("execution")}


@pytest.mark.parametrize(
    "reactor, standing",
    [
        (Standing, {"Standing.first": "succeeded", "Standing.child": "cancelled",
                    "Child.done": "succeeded", "Child.waiting": "cancelled"}),
        (StandsBeside, {"StandsBeside.first": "succeeded", "StandsBeside.beside": "cancelled",
                        "Child.done": "succeeded", "Child.waiting": "cancelled"}),
        (StandsAsking, {"StandsAsking.first": "succeeded", "StandsAsking.answer": "cancelled"}),
        (StandsHolding, {"StandsHolding.first": "succeeded", "StandsHolding.again": "cancelled"}),
    ],
)  # fmt: skip
def test_u95_cancelled_without_a_rollback_it_ends_at_once_as_it_stands(reactor: Any, standing: dict[str, str]) -> None:
    with ExitStack() as held:
        if reactor in {Standing, StandsBeside}:
            held.enter_context(testing.hold("acct:1"))
        handle = reactor.enqueue()
        testing.drain(timeout=20)
        with heard_signals() as heard:
            handle.cancel(reason="leave it", rollback=False)
        row = handle.execution
        assert (row.status, row.reason, row.cancel_as_it_stands) == ("cancelled", "leave it", True)
        assert inspect.line("acct:1") == []
    testing.drain(timeout=20)
    assert _statuses(row) == standing
    assert set(Execution.objects.values_list("status", flat=True)) == {"cancelled"}
    testing.assert_free("acct:1")
    told = [each["kind"] for each in heard]
    assert (told[0], told.count("cancelled")) == ("cancel_requested", Execution.objects.count())
    assert "undone" not in told and "rolling_back" not in told
    rows = [each.kind for each in TraceEvent.objects.order_by("id")][-len(told) :]
    assert sorted(rows) == sorted(told), "what the signals said is what the trace says"


class StoppedInside(Told):
    """Its second step asks for its end, as it stands, while it runs."""

    first = step(Work)

    @step(after=first)
    def asked() -> None:
        verbs.cancel(Execution.objects.get(parent=None), reason="leave it", rollback=False)

    behind = step(Work, after=asked)


class StoppedBelow(Told):
    """The same, asked for in a composed child."""

    inner = compose(StoppedInside)
    behind = step(Work, after=inner)


@both
@pytest.mark.parametrize("reactor", [StoppedInside, StoppedBelow])
def test_u95_a_running_one_ends_as_it_stands_at_its_next_step(start: Callable[..., Execution], reactor: Any) -> None:
    row = start(reactor)
    row.refresh_from_db()
    assert (row.status, row.reason, row.lease_token) == ("cancelled", "leave it", "")
    assert set(Execution.objects.values_list("status", flat=True)) == {"cancelled"}
    runs = _statuses(row)
    assert (runs["StoppedInside.first"], runs["StoppedInside.asked"]) == ("succeeded", "succeeded")
    assert "StoppedInside.behind" not in runs and runs.get("StoppedBelow.inner") in {None, "cancelled"}
    assert not TraceEvent.objects.filter(kind__in=["undone", "compensated", "rolling_back"]).exists()


def test_u95_the_wish_that_was_said_last_counts() -> None:
    class Wavers(Told):
        first = step(Work)

        @step(after=first)
        def asked() -> None:
            verbs.cancel(Execution.objects.get(), rollback=False)
            verbs.cancel(Execution.objects.get(), reason="undo it after all")

        behind = step(Work, after=asked)

    row = _in_worker(Wavers)
    assert (row.status, row.reason, row.cancel_as_it_stands) == ("cancelled", "undo it after all", False)
    assert _statuses(row)["Wavers.first"] == "undone"


def test_what_stands_is_neither_retried_nor_undone_and_a_unit_is_not_stopped_alone() -> None:
    handle = StandsAsking.enqueue()
    testing.drain()
    handle.cancel(rollback=False)
    for verb in ("retry", "undo"):
        with pytest.raises(ExecutionConflict):
            getattr(verbs, verb)(handle.execution)
    with testing.hold("acct:1"):
        StandsBeside.enqueue()
        testing.drain()
        unit = Execution.objects.get(parent_step="beside")
        with pytest.raises(ExecutionConflict, match="cancelled without a rollback, for its parent"):
            unit.cancel(rollback=False)


def test_what_no_code_knows_can_be_ended_as_it_stands() -> None:
    handle = StandsAsking.enqueue()
    testing.drain()
    Execution.objects.update(reactor="gone.Reactor", status="needs_definition")
    handle.cancel(reason="its code is gone", rollback=False)
    assert handle.status == "cancelled"
