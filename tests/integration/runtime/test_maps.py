"""Maps: what their declaration promises is kept, and in process they refuse what a worker refuses."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Input, Reactor, element, map_each, step, with_lock
from reactor_coord.coordination import inspect
from reactor_coord.errors import DefinitionError
from reactor_coord.models import Execution
from reactor_coord.operations import verbs
from reactor_coord.runtime import deliver
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import eventually, killed
from tests.live.reactors import BriefWork, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}")
class HoldsWhatItsElementsNeed(Reactor):
    """The whole reactor holds the lock that each element asks for."""

    key = Input(str)
    each = map_each(LockedWork, over=["a", "b"], name=element(), key=key)


class Mapped(Named):
    """A map over three names, and a step behind it."""

    each = map_each(Work, over=["x", "y", "z"], name=element(), collect=lambda values: [v["step"] for v in values])
    behind = step(Work, after=each)


class LockedMapped(Named):
    """Elements that come one at a time."""

    key = Input(str)
    each = map_each(BriefWork, over=["x", "y", "z"], name=element(), key=key)


ELEMENT_RUNS = {
    "body.before": ["x", "y", "z"],  # the second element has not begun
    "body.after": ["x", "y", "y", "z"],  # its body ran, its end is not written: it runs again, under its own key
    "checkpoint.before": ["x", "x", "y", "z"],
    "checkpoint.after": ["x", "y", "z"],
}


@pytest.mark.parametrize("point", list(ELEMENT_RUNS))
@pytest.mark.parametrize("ends", ["completes", "fails"])
def test_v01_elements_begun_in_process_are_gone_on_with_by_a_worker_that_resumes_them(
    reactor_dispatches: Any, recorder: Recorder, point: str, ends: str
) -> None:
    inputs = {"fail_at": "behind"} if ends == "fails" else {}
    row = killed(lambda: Mapped.run(**inputs), point, 1)
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    bodies = recorder.intervals("run each")
    assert sorted(body.notes["name"] for body in bodies) == ELEMENT_RUNS[point]
    assert len({body.notes["execution"] for body in bodies}) == 3, (
        "each element has one execution, so one idempotency key"
    )
    assert Execution.objects.filter(parent=row, parent_step="each").count() == 3
    undone = sorted(body.notes["name"] for body in recorder.intervals("undo each"))
    assert (row.status, undone) == (("completed", []) if ends == "completes" else ("failed", ["x", "y", "z"]))


def test_v01_an_element_taken_up_again_in_its_own_row_may_wait_for_its_key(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    row = killed(lambda: LockedMapped.run(key="k"), "body.before", 1)
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    assert row.status == "parked", "the dead process's hold has not lapsed yet"
    eventually(lambda: inspect.look("k").hold is None, 20)
    deliver(row.id, "a worker")
    drain()
    row.refresh_from_db()
    assert row.status == "completed"
    assert [body.notes["name"] for body in recorder.intervals("run each")] == ["x", "y", "z"]


def test_u20_an_undo_option_that_was_read_nowhere_is_refused() -> None:
    with pytest.raises((DefinitionError, TypeError), match="undo_all"):

        class Undone(Reactor):
            each = map_each(Work, over=["a"], arguments={"name": element()}, undo_all=True)


def test_u105_an_element_that_needs_a_held_key_is_refused_in_process_too(recorder: Recorder) -> None:
    outcome = HoldsWhatItsElementsNeed.run(key="k")

    assert outcome.failure is not None
    assert outcome.failure.error_type == "HandOffRefused"
    assert recorder.sequence() == []
    assert not Execution.objects.filter(element_index__isnull=False).exists()
