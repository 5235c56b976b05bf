"""A period by real workers: killed anywhere before its success, a run leaves the bucket free."""

from __future__ import annotations

import pytest

from reactor_coord.coordination import periods
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from tests.live.limited import Covered
from tests.live.support import step_run
from tests.support.patience import PATIENCE, patience

pytestmark = pytest.mark.django_db(transaction=True)


def test_b075_b071_killed_before_or_in_its_body_it_blocks_nobody(live_worker: StartWorker, recorder: Recorder) -> None:
    worker = live_worker(settings={"REACTOR_COORD": {"LEASE_TTL": 1, "SWEEP_INTERVAL": 0.5}})
    killed = Covered.enqueue(name="killed", key="k", seconds=60)
    recorder.wait_for("run report")
    worker.kill()
    assert periods().marks("k:report") == []
    live_worker(settings={"REACTOR_COORD": {"LEASE_TTL": 60, "SWEEP_INTERVAL": 0.5}})
    after = Covered.enqueue(name="after", key="k")
    assert after.wait(patience(15)).succeeded
    assert step_run(after, "report").status == "succeeded"
    (mark,) = periods().marks("k:report")
    assert mark.by == str(after.id)
    again = Covered.enqueue(name="again", key="k")
    assert again.wait(PATIENCE).succeeded
    assert step_run(again, "report").reason == "period"
    killed.cancel()
