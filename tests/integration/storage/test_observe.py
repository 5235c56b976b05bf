"""One line for every event, which a program can read and no key can break; counters that know a park from a failure."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry

from reactor_coord.engine.states import EventKind
from reactor_coord.observe import logs, metrics, telemetry
from reactor_coord.signals import SIGNALS

EXECUTION = str(uuid4())


def send(kind: EventKind, **given: Any) -> None:
    """Send the signal as the runtime does."""
    event = {"reactor": "Payment", "step": "charge", "primitive": "lock", "key": "acct:1", "holder": "", "data": {}}
    SIGNALS[kind].send_robust(
        sender=None, kind=kind, execution=EXECUTION, root=EXECUTION, at=timezone.now(), **{**event, **given}
    )


def test_every_kind_of_event_has_a_signal_and_a_line() -> None:
    assert set(SIGNALS) == set(EventKind) == set(logs.LINES)
    assert len({id(each) for each in SIGNALS.values()}) == len(SIGNALS)
    assert all(logs.LINES[kind].level < logging.ERROR for kind in EventKind)


def test_a_park_is_one_line_with_all_that_is_asked_of_it(caplog: pytest.LogCaptureFixture) -> None:
    logs.connect()
    with caplog.at_level(logging.INFO, "reactor_coord"):
        send(EventKind.PARKED, data={"attempt": 2}, holder="x1")

    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "event=reactor_coord.step.parked reactor=Payment step=charge primitive=lock key=acct:1 holder=x1 attempt=2 "
        f"execution={EXECUTION}"
    )
    assert record.__dict__["event"] == "reactor_coord.step.parked"
    assert record.__dict__["reactor_coord"]["key"] == "acct:1"


@pytest.mark.parametrize("kind", [EventKind.LOST, EventKind.WORKER_LOST, EventKind.UNDO_FAILED, EventKind.ABORTED])
def test_what_an_operator_must_see_is_a_warning(caplog: pytest.LogCaptureFixture, kind: EventKind) -> None:
    with caplog.at_level(logging.WARNING, "reactor_coord"):
        send(kind)
        send(EventKind.PARKED)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


def test_a_key_cannot_forge_a_line_or_a_pair(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reactor_coord"):
        send(EventKind.PARKED, key='a\nevent=forged "x" \u2028', step="s" * 900, data={"attempt": 0})

    message = caplog.records[0].getMessage()
    assert len(message.splitlines()) == 1
    assert 'key="a\\nevent=forged \\"x\\" \\u2028"' in message
    assert "s" * 500 + "…" in message
    assert "attempt=0" in message


def test_a_receiver_that_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError

    SIGNALS[EventKind.PARKED].connect(broken)
    try:
        with caplog.at_level(logging.INFO, "reactor_coord"):
            send(EventKind.PARKED)
    finally:
        SIGNALS[EventKind.PARKED].disconnect(broken)
    assert any("step.parked" in each.getMessage() for each in caplog.records)


def test_a_park_is_counted_as_a_park(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_connected", False)
    registry = CollectorRegistry()
    metrics.connect(registry)
    try:
        send(EventKind.PARKED)
        send(EventKind.WOKEN, data={"parked_seconds": 0.25})
    finally:
        for kind, signal in SIGNALS.items():
            signal.disconnect(dispatch_uid=f"reactor_coord.observe.metrics.{kind.value}")

    def count(kind: str) -> float | None:
        labels = {"kind": kind, "reactor": "Payment", "step": "charge", "primitive": "lock"}
        return registry.get_sample_value("reactor_coord_events_total", labels)

    assert (count("parked"), count("step_failed")) == (1, None)
    assert registry.get_sample_value("reactor_coord_parked_seconds_sum", {"reactor": "Payment"}) == 0.25


def test_telemetry_without_a_span_is_silent() -> None:
    telemetry.connect()
    try:
        send(EventKind.PARKED)
    finally:
        for kind, signal in SIGNALS.items():
            signal.disconnect(dispatch_uid=f"reactor_coord.observe.telemetry.{kind.value}")
