"""What is told of coordination in process (park_05, seen_01, seen_05)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from reactor_coord import Input, signals, step, testing, with_lock
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import approximately, failure, trace
from tests.live.reactors import Guarded, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5, wait=1)
class WaitsASecond(Work):
    """Waits one second in process."""

    key = Input(str)


class Waiting(Named):
    """a, then the contended step."""

    key = Input(str)
    a = step(Work)
    charge = step(WaitsASecond, after=a)


def test_park_05_in_process_it_waits_then_fails_and_rolls_back(recorder: Recorder) -> None:
    with testing.hold("k") as held:
        begun = time.monotonic()
        outcome = Waiting.run(key="k")
        assert time.monotonic() - begun == approximately(1.0)
    assert failure(outcome).error_type == "LockContended"
    assert (failure(outcome).reactor, failure(outcome).step) == ("Waiting", "charge")
    assert all(word in failure(outcome).message for word in ("Waiting", "charge", "'k'", held.owner))
    assert recorder.sequence() == ["run a", "undo a"]
    assert [event.kind for event in trace(outcome, "parked")] == []


def test_seen_05_the_failure_names_reactor_step_and_key() -> None:
    with testing.hold("k"):
        outcome = Waiting.run(key="k")
    error = failure(outcome).error
    assert (error.reactor, error.step, error.primitive, error.key) == ("Waiting", "charge", "lock", "k")
    assert "testing.hold" in error.holder
    assert (failure(outcome).reactor, failure(outcome).step) == ("Waiting", "charge")
    for word in ("Waiting", "charge", "'k'"):
        assert word in failure(outcome).message


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, str, str, str]]]:
    """Signals about holds: which signal, reactor, step, primitive, key."""
    found: list[tuple[str, str, str, str, str]] = []
    receivers: list[Any] = []
    named = {"acquired": signals.hold_acquired, "refused": signals.hold_refused, "released": signals.hold_released}
    for name, signal in named.items():

        def hear(sender: Any, name: str = name, **told: Any) -> None:
            assert told["kind"] == name
            found.append((name, told["reactor"], told["step"], told["primitive"], told["key"]))

        receivers.append(hear)
        signal.connect(hear)
    yield found
    for signal, receiver in zip(named.values(), receivers, strict=True):
        signal.disconnect(receiver)


def test_seen_01_each_event_is_a_signal_of_its_own(heard: list[tuple[str, str, str, str, str]]) -> None:
    Guarded.run(outer_key="outer", key="k")
    assert heard == [
        ("acquired", "Guarded", "", "lock", "outer"),
        ("acquired", "Guarded", "charge", "lock", "k"),
        ("released", "Guarded", "charge", "lock", "k"),
        ("released", "Guarded", "", "lock", "outer"),
    ]


def test_seen_01_a_refusal_is_one_too(heard: list[tuple[str, str, str, str, str]]) -> None:
    with testing.hold("k"):
        Waiting.run(key="k")
    with testing.hold("outer"):
        Guarded.run(outer_key="outer", key="k")
    assert heard == [("refused", "Waiting", "charge", "lock", "k"), ("refused", "Guarded", "", "lock", "outer")]


def test_seen_01_every_signal_is_a_trace_row(heard: list[tuple[str, str, str, str, str]]) -> None:
    outcome = Guarded.run(outer_key="outer", key="k")
    rows = [(row.kind, row.step, row.primitive, row.key) for row in trace(outcome, "acquired", "released", "refused")]
    assert rows == [(name, *rest) for name, _, *rest in heard]


def test_a_receiver_that_raises_changes_nothing(recorder: Recorder) -> None:
    def broken(sender: Any, **told: Any) -> None:
        raise RuntimeError("a receiver's own fault")

    signals.hold_acquired.connect(broken)
    try:
        outcome = Guarded.run(outer_key="outer", key="k")
    finally:
        signals.hold_acquired.disconnect(broken)
    assert outcome.succeeded
