"""Only the step is locked: what comes before and behind it runs beside the others' (scope_01, scope_02)."""

from __future__ import annotations

import time
from functools import partial

import pytest

from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import at_once
from tests.live.reactors import EightSteps

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_scope_01_every_other_step_overlaps(recorder: Recorder) -> None:
    begun = time.monotonic()
    both = at_once(*[partial(EightSteps.run, name=name, key="shared", seconds=0.2) for name in "ab"])
    took = time.monotonic() - begun
    assert all(outcome.succeeded for outcome in both)
    assert recorder.overlaps("run s3") == []
    bodies = [body for body in recorder.intervals() if body.label != "run s3"]
    for number in (1, 2, 4, 5, 6, 7, 8):
        # One run is behind the other by a third step: what its step runs beside is another step of the other.
        mine = [body for body in bodies if body.label == f"run s{number}"]
        assert any(a.overlaps(b) for a in mine for b in bodies if a.notes["name"] != b.notes["name"]), number
    assert took < 3.2


def test_scope_02_a_later_step_begins_while_another_waits_for_the_lock(recorder: Recorder) -> None:
    at_once(*[partial(EightSteps.run, name=name, key="shared", seconds=0.2) for name in "ab"])
    first, second = recorder.intervals("run s3")
    fourth = next(body for body in recorder.intervals("run s4") if body.notes["name"] == first.notes["name"])
    waited = next(body for body in recorder.intervals("run s2") if body.notes["name"] == second.notes["name"])
    assert waited.left < fourth.entered, "the other did not wait at its third step"
    assert first.left <= second.entered
    assert fourth.entered < second.left
