"""Only the step is locked: what comes before and behind it runs beside the others' (scope_01, scope_02)."""

from __future__ import annotations

import time
from functools import partial

import pytest

from reactor_coord import testing
from reactor_coord.coordination import inspect
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import Background, at_once, eventually
from tests.live.reactors import EightSteps
from tests.support.holders import in_line_for

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


def test_u92_scope_02_a_later_step_begins_while_another_waits_for_the_lock(recorder: Recorder) -> None:
    """One more stands in line between the two, and keeps the key until A's step 4 has begun: B waits all that time."""
    with testing.hold("shared") as held:
        ahead = Background(partial(EightSteps.run, name="a", key="shared", seconds=0.05))
        _wait_for_the_line(1)
        with in_line_for("shared", recorder, "between", until="run s4"):
            _wait_for_the_line(2)
            behind = Background(partial(EightSteps.run, name="b", key="shared", seconds=0.05))
            _wait_for_the_line(3)
            held.release()
            assert ahead.result().succeeded
            assert behind.result().succeeded
    a = {body.label: body for body in recorder.intervals() if body.notes.get("name") == "a"}
    b = {body.label: body for body in recorder.intervals() if body.notes.get("name") == "b"}
    (between,) = recorder.intervals("between")
    assert b["run s2"].left < a["run s4"].entered < b["run s3"].entered
    assert between.entered < a["run s8"].left, "the key was kept until the end of A, not of its step"


def _wait_for_the_line(count: int) -> None:
    eventually(lambda: inspect.look("shared").waiting == count)
