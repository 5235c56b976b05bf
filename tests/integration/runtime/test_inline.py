"""Inline steps: the decorator moved verbatim to a class changes nothing; cleanup runs under the lock too."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Reactor, testing
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.shapes import REACTORS, ByClass, ByInline
from tests.integration.runtime.support import failure, told

pytestmark = pytest.mark.django_db(transaction=True)

ENDS: list[dict[str, Any]] = [{}, {"way": "raise"}, {"way": "return"}, {"way": "fail"}, {"fail_at": "behind"}]


def _life(reactor: type[Reactor], recorder: Recorder, **inputs: Any) -> tuple[Any, ...]:
    recorder.clear()
    outcome = reactor.run(key="k", **inputs)
    shown = outcome.failure and (outcome.failure.step, outcome.failure.error_type, outcome.failure.message)
    held = [entry.notes.get("held") for entry in recorder.entries() if entry.kind == "enter"]
    return outcome.status, shown, recorder.sequence(), held, told(outcome)


@pytest.mark.parametrize("inputs", ENDS, ids=str)
def test_inline_and_class_live_the_same_life(inputs: dict[str, Any], recorder: Recorder) -> None:
    lives = [_life(reactor, recorder, **inputs) for reactor in REACTORS.values()]
    assert lives[0] == lives[1]


def test_inline_and_class_declare_the_same() -> None:
    one, other = (reactor.definition.steps["charge"].coordination for reactor in (ByClass, ByInline))
    assert dict(one) == dict(other)


def test_inline_compensate_runs_under_the_lock(recorder: Recorder) -> None:
    ByInline.run(key="k", way="raise")
    assert recorder.intervals("comp charge")[0].notes["held"] == ["k"]


def test_inline_undo_runs_under_the_lock(recorder: Recorder) -> None:
    ByInline.run(key="k", fail_at="behind")
    assert recorder.intervals("undo charge")[0].notes["held"] == ["k"]


def test_inline_contended_fails_naming_it(payment: type[Reactor], recorder: Recorder) -> None:
    with testing.hold("k"):
        outcome = payment.run(key="k")
    assert failure(outcome).step == "charge"
    assert failure(outcome).error_type == "LockContended"
    assert recorder.sequence() == ["run before", "undo before"]
