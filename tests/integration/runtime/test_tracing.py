"""u96: a span for each execution, step, compensation and undo, in one trace over parks and hand-offs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace as api
from opentelemetry.trace import StatusCode

from reactor_coord import Input, Reactor, compose, signals, spans, step, testing, with_lock
from reactor_coord.models import Execution
from reactor_coord.observe import telemetry
from reactor_coord.testing.recorder import Recorder
from tests.integration.testing.shapes import Asking, Beside, Order, Told, Work
from tests.live.reactors import Retried
from tests.support.spans import Recorded, recorded_spans

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]


class Inner(Told):
    """One step."""

    pay = step(Work)


class Small(Told):
    """A step, a composed child, a step."""

    a = step(Work)
    inner = compose(Inner, after=a)
    z = step(Work, after=inner)


@with_lock("{key}", ttl=5)
class Locked(Told):
    """Waits for a key at its door."""

    key = Input(str, default="k")
    a = step(Work)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recorded_spans() as found:
        yield found


def test_u96_an_execution_its_steps_and_what_is_composed_are_spans_inside_each_other(recorded: Recorded) -> None:
    Small.run()
    assert recorded.tree() == [
        "execute Small",
        "  step Small.a",
        "  step Small.inner",
        "    execute Inner",
        "      step Inner.pay",
        "  step Small.z",
    ]
    assert all(span.status.status_code is StatusCode.UNSET for span in recorded.spans)


def test_u96_compensations_and_undos_are_spans_and_what_failed_is_marked(recorded: Recorded) -> None:
    Small.run(fail_at="z", undo_fail_at="a")
    assert recorded.tree() == [
        "execute Small",
        "  step Small.a",
        "  step Small.inner",
        "    execute Inner",
        "      step Inner.pay",
        "  step Small.z",
        "  compensate Small.z",
        "  undo Inner.pay",
        "  undo Small.a",
    ]
    failed = {span.name: span.attributes["error.type"] for span in recorded.spans if not span.status.is_ok}  # type: ignore[index]
    assert failed == {"execute Small": "BodyFailed", "step Small.z": "BodyFailed", "undo Small.a": "BodyFailed"}


def test_u96_a_step_is_marked_up_to_where_its_failure_is_caught(recorded: Recorded) -> None:
    Small.run(fail_at="pay")
    failed = [span.name for span in recorded.spans if not span.status.is_ok]
    assert failed == ["execute Small", "step Small.inner", "execute Inner", "step Inner.pay"]


def test_u96_a_retried_step_is_not_marked(recorded: Recorded) -> None:
    Retried.run(key="k", fail_at="charge", fails=1)
    assert all(span.status.is_ok for span in recorded.spans)
    told = [event.name for event in recorded.one("step Retried.charge").events]
    assert told.count("reactor_coord.step_started") == 2
    assert "reactor_coord.retrying" in told


def test_u96_a_body_runs_inside_the_span_of_its_step(recorded: Recorded) -> None:
    class Asks(Reactor):
        """What is traced inside a body belongs to its step."""

        @step
        def call() -> None:
            with recorded.tracer.start_as_current_span("GET /charge"):
                """A call."""

    Asks.run()
    assert recorded.tree() == ["execute Asks", "  step Asks.call", "    GET /charge"]


def test_u96_a_run_in_process_is_part_of_the_trace_of_its_caller(recorded: Recorded) -> None:
    with recorded.tracer.start_as_current_span("POST /checkout"):
        Small.run()
    assert recorded.tree()[:2] == ["POST /checkout", "  execute Small"]
    assert recorded.one("execute Small").links == ()


@pytest.mark.parametrize("how", ["enqueued", "parked", "asked"])
def test_u96_all_that_becomes_of_an_execution_is_one_trace_wherever_it_runs(recorded: Recorded, how: str) -> None:
    reactor = {"enqueued": Small, "parked": Locked, "asked": Asking}[how]
    with recorded.tracer.start_as_current_span("POST /checkout") as started:
        handle = reactor.enqueue()
    with testing.hold("k"):
        testing.drain()
    if how == "asked":
        Asking.resume("order-7", payload={"approved": True})
    testing.drain(timeout=20)

    assert handle.status == "completed"
    legs = recorded.named(f"execute {reactor.__name__}")
    assert len(legs) == (1 if how == "enqueued" else 2)
    trace_id = started.get_span_context().trace_id
    assert {span.context.trace_id for span in recorded.spans} == {trace_id}
    assert {leg.parent.span_id for leg in legs if leg.parent} == {started.get_span_context().span_id}


def test_u96_what_a_step_hands_off_is_below_it(recorded: Recorded) -> None:
    Beside.enqueue()
    testing.drain(timeout=20)
    handed_off = recorded.one("execute Beside.track")
    assert handed_off.parent is not None
    assert handed_off.parent.span_id in {span.context.span_id for span in recorded.named("step Beside.track")}
    assert len({span.context.trace_id for span in recorded.spans}) == 1


def test_u96_an_element_in_process_and_in_a_worker_are_spans_below_their_map(recorded: Recorded) -> None:
    Order.run()
    in_process = recorded.named("execute Line")
    Order.enqueue()
    testing.drain(timeout=20)
    maps = {span.context.span_id for span in recorded.named("step Order.lines")}
    elements = recorded.named("execute Line")
    assert (len(in_process), len(elements)) == (3, 6)
    assert all(each.parent is not None and each.parent.span_id in maps for each in elements)


def test_u96_what_a_message_brought_about_is_linked_to_what_sent_it(recorded: Recorded) -> None:
    with recorded.tracer.start_as_current_span("POST /checkout"):
        handle = Small.enqueue()
    with recorded.tracer.start_as_current_span("release by another") as sender:
        carried = spans.carrier()
    with recorded.tracer.start_as_current_span("run/reactor_coord.run") as worker, spans.received(carried):
        testing.drain()

    assert handle.status == "completed"
    linked = {link.context.span_id for link in recorded.one("execute Small").links}
    assert linked == {sender.get_span_context().span_id, worker.get_span_context().span_id}


@pytest.mark.parametrize(
    "odd", [{}, {"traceparent": "nonsense"}, {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"}, {"x": "y"}]
)
def test_u96_a_damaged_context_costs_the_trace_and_no_work(recorded: Recorded, odd: dict[str, str]) -> None:
    handle = Small.enqueue()
    Execution.objects.update(trace_context=odd)
    with spans.received(odd):
        testing.drain()
    assert handle.status == "completed"
    assert recorded.one("execute Small").links == ()


def test_u96_events_are_on_the_span_in_which_they_happen(recorded: Recorded) -> None:
    Locked.run()
    of_execution = [event.name.removeprefix("reactor_coord.") for event in recorded.one("execute Locked").events]
    of_step = [event.name.removeprefix("reactor_coord.") for event in recorded.one("step Locked.a").events]
    assert of_execution == ["started", "acquired", "completed", "released"]
    assert of_step == ["step_started", "step_succeeded"]
    [acquired] = [each for each in recorded.one("execute Locked").events if each.name == "reactor_coord.acquired"]
    assert acquired.attributes is not None
    assert (acquired.attributes["reactor_coord.primitive"], acquired.attributes["reactor_coord.key"]) == ("lock", "k")
    assert isinstance(acquired.attributes["reactor_coord.fence"], int)


def test_u96_neither_messages_of_errors_nor_payloads_are_attributes(recorded: Recorded) -> None:
    class Secretive(Reactor):
        """Its error and its input say too much."""

        card = Input(str, redact=True)

        @step(card=card)
        def charge(card: str) -> None:
            raise ValueError("declined: 4000-0000-0000-0002 of Mrs. Smith")

    Secretive.run(card="4000-0000-0000-0002")
    told = str(
        [
            (span.attributes, span.status.description, [each.attributes for each in span.events])
            for span in recorded.spans
        ]
    )
    assert "ValueError" in told
    assert "4000" not in told
    assert "Smith" not in told


def test_u96_without_a_tracer_nothing_is_kept() -> None:
    Small.enqueue()
    assert Execution.objects.get().trace_context == {}
    assert spans.carrier() == {}


def test_u96_baggage_of_the_project_is_not_written_to_the_row(recorded: Recorded) -> None:
    from opentelemetry import baggage, context

    token = context.attach(baggage.set_baggage("session", "secret"))
    try:
        with recorded.tracer.start_as_current_span("POST /checkout"):
            Small.enqueue()
    finally:
        context.detach(token)
    assert set(Execution.objects.get().trace_context) == {"traceparent"}


def test_u96_that_a_step_a_compensation_and_an_undo_begin_are_signals(recorder: Recorder) -> None:
    heard: list[tuple[str, str, str]] = []

    def hear(sender: object, *, kind: str, reactor: str, step: str, **_: object) -> None:
        heard.append((str(kind), reactor, step))

    begun = (signals.step_started, signals.compensation_started, signals.undo_started)
    for signal in begun:
        signal.connect(hear)
    try:
        outcome = Small.run(fail_at="z")
    finally:
        for signal in begun:
            signal.disconnect(hear)
    assert heard == [
        ("step_started", "Small", "a"),
        ("step_started", "Small", "inner"),
        ("step_started", "Inner", "pay"),
        ("step_started", "Small", "z"),
        ("compensation_started", "Small", "z"),
        ("undo_started", "Inner", "pay"),
        ("undo_started", "Small", "a"),
    ]
    assert not outcome.execution.trace.filter(
        kind__in=["step_started", "undo_started", "compensation_started"]
    ).exists()


def test_u96_without_opentelemetry_connecting_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"install django-reactor-coord\[telemetry\]"):
        telemetry.connect()
    assert spans.tracer is None


def test_u96_spans_end_when_an_execution_is_interrupted(recorded: Recorded) -> None:
    class Stopped(Reactor):
        """Ctrl-C comes while its body runs."""

        @step
        def body() -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stopped.run()
    assert recorded.tree() == ["execute Stopped", "  step Stopped.body"]
    assert not api.get_current_span().get_span_context().is_valid
