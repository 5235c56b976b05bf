"""One line for every event, which a program can read and no key can break; counters that know a park from a failure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry

from reactor_coord import Reactor, signals, step
from reactor_coord.engine import events
from reactor_coord.engine.events import Event
from reactor_coord.engine.states import EventKind
from reactor_coord.observe import logs, metrics, telemetry
from reactor_coord.signals import SIGNALS
from reactor_coord.storage import journal
from tests.live.reactors import Guarded, Work
from tests.support.events import NOON, every_event, full

EXECUTION = uuid4()
PARKED = events.ExecutionParked(step="charge", primitive="lock", key="acct:1", park_kind="contention", attempt=2)


def tell(*told: Event, reactor: str = "Payment") -> None:
    """Tell of these as a run does."""
    for event in told:
        journal.publish(journal.Note(event, timezone.now(), EXECUTION, EXECUTION, reactor))


@pytest.fixture
def scraped(monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectorRegistry]:
    """A registry that counts."""
    monkeypatch.setattr(metrics, "_connected", False)
    registry = CollectorRegistry()
    metrics.connect(registry)
    yield registry
    for kind, signal in SIGNALS.items():
        signal.disconnect(dispatch_uid=f"reactor_coord.observe.metrics.{kind.value}")


def counted(registry: CollectorRegistry, kind: str, **labels: str) -> float | None:
    """How often it was counted; None where there is no series."""
    known = {"reactor": "Payment", "step": "charge", "primitive": "lock", **labels}
    return registry.get_sample_value("reactor_coord_events_total", {"kind": kind, **known})


# ---- signals


def test_every_kind_of_event_has_a_payload_a_signal_and_a_line() -> None:
    assert set(SIGNALS) == set(EventKind) == set(logs.LINES) == set(events.BY_KIND)
    assert len({id(each) for each in SIGNALS.values()}) == len(SIGNALS)


@every_event
def test_a_signal_is_named_as_its_payload(event: type[Event]) -> None:
    name = "".join(f"_{each.lower()}" if each.isupper() else each for each in event.__name__).lstrip("_")
    assert getattr(signals, name) is SIGNALS[event.kind]


# ---- log lines


@every_event
def test_a_line_shows_what_row_and_signal_say(event: type[Event], caplog: pytest.LogCaptureFixture) -> None:
    told = full(event)
    with caplog.at_level(logging.DEBUG, "reactor_coord"):
        tell(told)

    [record] = caplog.records
    line = logs.LINES[event.kind]
    pairs = record.__dict__["reactor_coord"]
    assert (record.levelno, record.__dict__["event"]) == (line.level, f"reactor_coord.{line.name}")
    assert record.levelno < logging.ERROR
    assert {name: pairs[name] for name in line.details} == {name: told.data()[name] for name in line.details}
    assert (pairs.get("step", ""), pairs.get("primitive", ""), pairs.get("key", "")) == told.subject
    assert pairs.get("attempt") == told.data().get("attempt")
    assert pairs["execution"] == str(EXECUTION)
    assert all(f"{name}=" in record.getMessage() for name in pairs)


def test_a_line_that_shows_what_the_event_does_not_have_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="StepRetrying has no field delay; it has attempt, error_type"):
        logs.Line(events.StepRetrying, "step.retrying", logging.INFO, ("delay", "error_type"))


def test_u43_the_line_of_a_retry_says_when_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reactor_coord"):
        tell(events.StepRetrying(step="charge", attempt=1, error_type="Timeout", retry_in_seconds=2.5))
    assert "retry_in_seconds=2.5 error_type=Timeout" in caplog.records[0].getMessage()


def test_a_park_is_one_line_with_all_that_is_asked_of_it(caplog: pytest.LogCaptureFixture) -> None:
    logs.connect()
    parked = events.ExecutionParked(
        step="charge",
        primitive="lock",
        key="acct:1",
        park_kind="contention",
        attempt=2,
        held_by="x1",
        place=3,
        until=NOON + timedelta(seconds=5),
    )
    with caplog.at_level(logging.INFO, "reactor_coord"):
        tell(parked)

    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "event=reactor_coord.step.parked reactor=Payment step=charge primitive=lock key=acct:1 holder=x1 attempt=2 "
        f"park_kind=contention place=3 until=2026-03-01T12:00:05+00:00 execution={EXECUTION}"
    )


@pytest.mark.parametrize("event", [events.HoldLost, events.WorkerLost, events.StepUndoFailed, events.ExecutionAborted])
def test_what_an_operator_must_see_is_a_warning(caplog: pytest.LogCaptureFixture, event: type[Event]) -> None:
    with caplog.at_level(logging.WARNING, "reactor_coord"):
        tell(full(event), PARKED)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


def test_a_key_cannot_forge_a_line_or_a_pair(caplog: pytest.LogCaptureFixture) -> None:
    forged = events.ExecutionParked(
        step="s" * 900, primitive="lock", key='a\nevent=forged "x" \u2028', park_kind="contention"
    )
    with caplog.at_level(logging.INFO, "reactor_coord"):
        tell(forged)

    message = caplog.records[0].getMessage()
    assert len(message.splitlines()) == 1
    assert 'key="a\\nevent=forged \\"x\\" \\u2028"' in message
    assert "s" * 500 + "…" in message
    assert "attempt=0" in message


def test_a_receiver_that_raises_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError

    SIGNALS[EventKind.PARKED].connect(broken)
    try:
        with caplog.at_level(logging.INFO, "reactor_coord"):
            tell(PARKED)
    finally:
        SIGNALS[EventKind.PARKED].disconnect(broken)
    assert any("step.parked" in each.getMessage() for each in caplog.records)


# ---- metrics


@every_event
def test_an_event_is_counted_once_by_its_kind(event: type[Event], scraped: CollectorRegistry) -> None:
    told = full(event)
    step_name, primitive, _key = told.subject
    tell(told)
    total = [
        (sample.labels, sample.value)
        for metric in scraped.collect()
        for sample in metric.samples
        if sample.name == "reactor_coord_events_total" and sample.value
    ]
    labels = {"kind": event.kind.value, "reactor": "Payment", "step": step_name, "primitive": primitive}
    assert total == [(labels, 1)]


def test_a_park_is_counted_as_a_park(scraped: CollectorRegistry) -> None:
    tell(PARKED)
    assert (counted(scraped, "parked"), counted(scraped, "step_failed")) == (1, None)


def test_u43_the_time_parked_is_observed_at_the_wake(scraped: CollectorRegistry) -> None:
    tell(events.ExecutionWoken(park_kind="contention", parked_seconds=0.25), PARKED)
    tell(events.ExecutionWoken(park_kind="contention"))  # of a row that an earlier version parked
    of_payment = {"reactor": "Payment"}
    assert scraped.get_sample_value("reactor_coord_parked_seconds_sum", of_payment) == 0.25
    assert scraped.get_sample_value("reactor_coord_parked_seconds_count", of_payment) == 1


def test_u46_the_series_of_a_known_reactor_are_there_at_zero(scraped: CollectorRegistry) -> None:
    ours = {"reactor": "Guarded", "primitive": "lock"}
    assert [counted(scraped, kind, step="", **ours) for kind in ("acquired", "lock_lost", "parked")] == [0, 0, 0]
    assert [counted(scraped, kind, step="charge", **ours) for kind in ("refused", "deadlock")] == [0, 0]
    at_step = {"reactor": "Guarded", "step": "charge", "primitive": ""}
    assert [counted(scraped, kind, **at_step) for kind in ("step_failed", "retrying", "parked", "worker_lost")] == [
        0
    ] * 4
    assert [counted(scraped, kind, reactor="Guarded", step="", primitive="") for kind in ("failed", "aborted")] == [
        0,
        0,
    ]
    assert scraped.get_sample_value("reactor_coord_parked_seconds_count", {"reactor": "Guarded"}) == 0


def test_u46_a_reactor_that_is_defined_later_has_its_series_at_the_next_scrape(scraped: CollectorRegistry) -> None:
    class DefinedLater(Reactor):
        """Defined after the metrics were connected."""

        work = step(Work)

    assert counted(scraped, "completed", reactor="DefinedLater", step="", primitive="") == 0


def test_u46_no_series_is_made_that_no_event_counts_in() -> None:
    """A step has no lock that it does not declare, and an execution's end is at no step."""
    made = {(kind, step_name, primitive) for kind, _, step_name, primitive in metrics.series_of(Guarded.definition)}
    assert ("acquired", "charge", "lock") in made
    assert ("acquired", "charge", "semaphore") not in made
    assert ("completed", "", "") in made
    assert ("completed", "charge", "") not in made
    assert ("step_failed", "", "") not in made


@pytest.mark.django_db(transaction=True)
def test_u46_every_series_that_a_run_counts_in_was_there_before(scraped: CollectorRegistry) -> None:
    def ours() -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels[name] for name in ("kind", "step", "primitive")): sample.value
            for metric in scraped.collect()
            for sample in metric.samples
            if sample.name == "reactor_coord_events_total" and sample.labels["reactor"] == "Guarded"
        }

    before = ours()
    assert not any(before.values())
    Guarded.run(outer_key="outer", key="k")
    Guarded.run(outer_key="outer", key="k", fail_at="charge")
    after = ours()
    assert set(after) == set(before)
    assert after["completed", "", ""] == after["failed", "", ""] == after["step_failed", "charge", ""] == 1
    assert after["acquired", "charge", "lock"] == after["released", "charge", "lock"]


# ---- telemetry


def test_telemetry_without_a_span_is_silent() -> None:
    telemetry.connect()
    try:
        tell(PARKED)
    finally:
        for kind, signal in SIGNALS.items():
            signal.disconnect(dispatch_uid=f"reactor_coord.observe.telemetry.{kind.value}")
