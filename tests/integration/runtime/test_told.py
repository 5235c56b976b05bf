"""What is told is what happened, once: trace rows, signals, log lines and counts of every way through an execution agree.

Each way is run to its end. Then every row, every signal, every line and every count is held against the others, and against
how executions and steps stand.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reactor_coord import compose, step, testing
from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.observe import metrics
from reactor_coord.operations import verbs
from reactor_coord.signals import SIGNALS
from tests.integration.runtime.support import trace
from tests.integration.runtime.test_background import Before
from tests.integration.testing.shapes import Asking, Beside, Deciding, Family, Order, Told, Work
from tests.support.events import heard_signals

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]

Way = Callable[[], object]
Counts = Callable[[], tuple[Counter[tuple[str, ...]], int]]


def _run(reactor: Any, **inputs: Any) -> Any:
    return reactor.run(**inputs)


def _work(reactor: Any, **inputs: Any) -> Any:
    handle = reactor.enqueue(**inputs)
    testing.drain(timeout=20)
    return handle


def _both(name: str, reactor: Any, **inputs: Any) -> Iterator[tuple[str, Way]]:
    yield f"{name} in process", lambda: _run(reactor, **inputs)
    yield f"{name} in a worker", lambda: _work(reactor, **inputs)


def _parked_then_cancelled() -> None:
    with testing.hold("acct:1"):
        handle = _work(Order)
        handle.execution.cancel(reason="changed their mind")
        testing.drain(timeout=20)


def _cancelled_before_it_began() -> None:
    Order.enqueue().execution.cancel(reason="changed their mind")
    testing.drain()


def _refused_then_woken() -> None:
    with testing.hold("acct:1"):
        _work(Order)
    testing.drain(timeout=20)


def _asked_then(end: str) -> None:
    handle = _work(Asking)
    if end == "answered":
        Asking.resume("order-7", payload={"approved": True})
    else:
        handle.execution.cancel()
    testing.drain(timeout=20)


def _undone(undo_fail_at: str = "") -> None:
    handle = _work(Order, undo_fail_at=undo_fail_at)
    verbs.undo(handle.execution, reason="wrong order")
    testing.drain(timeout=20)


class Interrupted(Told):
    """Ctrl-C comes while the body of a composed child runs."""

    class Inner(Told):
        """One step."""

        @step
        def stopped() -> None:
            signal.raise_signal(signal.SIGINT)

    before = step(Work)
    inner = compose(Inner, after=before)


def _interrupted() -> None:
    with pytest.raises(KeyboardInterrupt):
        Interrupted.run()


class HaltsBelow(Told):
    """A composed child halts the tree."""

    before = step(Work)
    inner = compose(Deciding, verdict="halt", after=before)
    behind = step(Work, after=inner)


WAYS: dict[str, Way] = dict(
    [
        *_both("completed", Order),
        *_both("failed in a composed child", Order, fail_at="charge"),
        *_both("retried in a composed child", Order, fail_at="charge", fails=1),
        *_both("failed in a map of reactors", Order, fail_at="pack[1]"),
        *_both("failed in a map of steps", Order, fail_at="labels[1]"),
        *_both("failed late", Order, fail_at="ship"),
        *_both("failed late, with a cleanup that fails in a child", Order, fail_at="ship", undo_fail_at="audit"),
        *_both("failed late, with a cleanup that fails in an element", Order, fail_at="ship", undo_fail_at="pick[1]"),
        *_both("beside", Beside),
        *_both("failed beside", Beside, fail_at="track"),
        *_both("failed after what is beside", Beside, fail_at="last"),
        *_both("halted", Deciding, verdict="halt"),
        *_both("skipped", Deciding, verdict="skip"),
        *_both("under all primitives", Family),
        ("handed over", lambda: (_run(Before), testing.drain(timeout=20))),
        ("parked, then woken", _refused_then_woken),
        ("parked, then cancelled", _parked_then_cancelled),
        ("cancelled before it began", _cancelled_before_it_began),
        ("answered", lambda: _asked_then("answered")),
        ("paused, then cancelled", lambda: _asked_then("cancelled")),
        ("interrupted in a composed child", _interrupted),
        *_both("halted in a composed child", HaltsBelow),
        ("undone", _undone),
        ("undone, with a cleanup that fails", lambda: _undone("audit")),
    ]
)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """What was counted so far, by kind, reactor, step and primitive, and how many times parked were observed."""
    monkeypatch.setattr(metrics, "_connected", False)
    registry = CollectorRegistry()
    metrics.connect(registry)

    def read() -> tuple[Counter[tuple[str, ...]], int]:
        samples = [sample for metric in registry.collect() for sample in metric.samples if sample.value]
        names = ("kind", "reactor", "step", "primitive")
        counted = Counter(
            {
                tuple(each.labels[name] for name in names): int(each.value)
                for each in samples
                if each.name == "reactor_coord_events_total"
            }
        )
        return counted, sum(int(each.value) for each in samples if each.name == "reactor_coord_parked_seconds_count")

    yield read
    for kind, each in SIGNALS.items():
        each.disconnect(dispatch_uid=f"reactor_coord.observe.metrics.{kind.value}")


@pytest.mark.parametrize("way", WAYS)
def test_rows_signals_lines_and_counts_agree(way: str, counts: Counts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reactor_coord")
    with heard_signals() as heard:
        WAYS[way]()

    rows = list(TraceEvent.objects.select_related("execution").order_by("id"))
    of_rows = Counter(
        (str(row.execution_id), row.kind, row.step, row.primitive, row.key, json.dumps(row.data, sort_keys=True))
        for row in rows
    )
    of_signals = Counter(
        (
            each["execution"],
            each["kind"].value,
            each["step"],
            each["primitive"],
            each["key"],
            json.dumps(each["data"], sort_keys=True),
        )
        for each in heard
        if each["event"].is_recorded
    )
    assert of_signals == of_rows
    counted = Counter((each["kind"].value, each["reactor"], each["step"], each["primitive"]) for each in heard)
    assert counts() == (counted, sum(row.kind == EventKind.WOKEN for row in rows))
    lines = Counter(
        (found["execution"], found.get("step", ""), found["event"])
        for record in caplog.records
        if (found := getattr(record, "reactor_coord", None))
    )
    assert sum(lines.values()) == len(heard)
    assert _without_a_start(heard) == []
    assert _parked_and_not_woken() == []
    assert _not_told_once_of_executions() == []
    assert _not_told_once_of_steps() == []


ENDS = {
    ExecutionStatus.COMPLETED: EventKind.COMPLETED,
    ExecutionStatus.HALTED: EventKind.HALTED,
    ExecutionStatus.FAILED: EventKind.FAILED,
    ExecutionStatus.CANCELLED: EventKind.CANCELLED,
    ExecutionStatus.REVERTED: EventKind.REVERTED,
    ExecutionStatus.ABORTED: EventKind.ABORTED,
}
OUTCOMES = {
    StepStatus.SUCCEEDED: {EventKind.STEP_SUCCEEDED, EventKind.STEP_HALTED},
    StepStatus.SKIPPED: {EventKind.STEP_SKIPPED},
    StepStatus.FAILED: {EventKind.STEP_FAILED},
    StepStatus.COMPENSATED: {EventKind.COMPENSATED},
    StepStatus.UNDONE: {EventKind.UNDONE},
    StepStatus.UNDO_FAILED: {EventKind.UNDO_FAILED},
    StepStatus.CANCELLED: {EventKind.STEP_CANCELLED},
}


def _not_told_once_of_executions() -> list[str]:
    """Executions, with how often their end was told, where that is not once; and ends that were told and are none."""
    found = []
    for row in Execution.objects.order_by("id"):
        told = Counter(TraceEvent.objects.filter(execution=row, step="").values_list("kind", flat=True))
        end = ENDS[ExecutionStatus(row.status)]
        wrong = {kind: told[kind] for kind in ENDS.values() if told[kind] > 1 or (kind == end and told[kind] != 1)}
        if wrong:
            found.append(f"{row.label} of {row.parent_step or 'itself'} is {row.status}: {wrong}")
    return found


def _without_a_start(heard: list[dict[str, Any]]) -> list[str]:
    """Cleanups that are told as done and not as begun, and bodies that end without having begun."""
    told = Counter((each["kind"], each["execution"], each["step"]) for each in heard)
    found = []
    for kind, execution, step_name in told:
        ended = STARTS.get(kind)
        if ended is not None and told[ended, execution, step_name] != told[kind, execution, step_name]:
            found.append(f"{kind} of {step_name}")
    for each in heard:
        begun = (EventKind.STEP_STARTED, each["execution"], each["step"])
        if each["kind"] == EventKind.STEP_SUCCEEDED and not told[begun]:
            found.append(f"{each['step']} succeeded")
    return found


STARTS = {EventKind.COMPENSATED: EventKind.COMPENSATION_STARTED}


def _parked_and_not_woken() -> list[str]:
    """Completed executions that were not woken as often as they parked: each park ends by a wake, and each is told."""
    found = []
    for row in Execution.objects.filter(status=ExecutionStatus.COMPLETED, parent=None):
        told = Counter(TraceEvent.objects.filter(root_id=row.pk).values_list("kind", flat=True))
        if told[EventKind.PARKED] != told[EventKind.WOKEN]:
            found.append(f"{row.label} parked {told[EventKind.PARKED]} times, woken {told[EventKind.WOKEN]} times")
    return found


def _not_told_once_of_steps() -> list[str]:
    """The same of steps."""
    found = []
    for run in StepRun.objects.select_related("execution").order_by("id"):
        told = Counter(
            TraceEvent.objects.filter(execution=run.execution_id, step=run.step).values_list("kind", flat=True)
        )
        kinds = {kind for all_of in OUTCOMES.values() for kind in all_of}
        wanted = OUTCOMES.get(StepStatus(run.status))
        wrong = {str(kind): told[kind] for kind in kinds if told[kind] > 1}
        if wanted is not None and sum(told[kind] for kind in wanted) != 1:
            wrong |= {str(kind): told[kind] for kind in wanted}
        if wrong:
            found.append(f"{run.execution.label}.{run.step} is {run.status}: {wrong}; told: {dict(told)}")
    return found


def test_u45_a_map_or_an_async_step_that_fails_in_a_worker_is_told_once() -> None:
    for reactor, name in ((Order, "labels[1]"), (Beside, "track")):
        handle = _work(reactor, fail_at=name)
        [row] = trace(handle, "step_failed")
        assert (row.step, row.data["error_type"]) == (name.partition("[")[0], "BodyFailed")


@pytest.mark.parametrize("how", ["parked", "paused"])
def test_u43_a_wake_says_how_long_it_was_parked(how: str, counts: Counts) -> None:
    if how == "parked":
        with testing.hold("acct:1"):
            handle = Order.enqueue()
            testing.drain()
            time.sleep(0.2)
    else:
        handle = _work(Asking)
        time.sleep(0.2)
        Asking.resume("order-7", payload={"approved": True})
    testing.drain(timeout=20)

    woken = trace(handle, "woken")[0]
    parked = trace(handle, "parked")[0]
    between = (woken.at - parked.at).total_seconds()
    assert woken.data["parked_seconds"] >= 0.2
    assert woken.data["parked_seconds"] == pytest.approx(between, abs=0.2)
    assert counts()[1] == len(trace(handle, "woken")) == len(trace(handle, "parked"))
