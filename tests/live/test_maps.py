"""Maps by real workers: killed while they are written, with elements that fail or halt, and with values that are large."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord.models import Execution
from reactor_coord.runtime import sources
from reactor_coord.testing.recorder import Recorder
from tests.live import remote
from tests.live.fanned import Halting, LargeMap, Lenient, OverPostings
from tests.live.models import Posting
from tests.live.support import until
from tests.support.patience import patience

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE_FAULTS = True
SETTINGS = {"LEASE_TTL": 1.5, "SWEEP_INTERVAL": 0.5, "MAX_PAYLOAD_BYTES": 5_000}


def test_u17_a_worker_killed_between_two_chunks_is_gone_on_behind_the_last_row(
    live_worker: Any, recorder: Recorder
) -> None:
    rows = 2 * sources.CHUNK + 100
    Posting.objects.bulk_create(Posting(account="a", amount=number, execution="x") for number in range(1, rows + 1))
    worker = live_worker(concurrency=2, settings={"REACTOR_COORD": SETTINGS})
    remote.arm("checkpoint.after", "kill")
    handle = OverPostings.enqueue()
    until(lambda: Execution.objects.filter(parent_id=handle.id).exists(), "the first chunk", 20)
    worker.kill()
    written = Execution.objects.filter(parent_id=handle.id).count()
    assert written < rows, "it was killed before the last chunk"
    Posting.objects.filter(amount__lt=50).delete()
    live_worker(concurrency=2, settings={"REACTOR_COORD": SETTINGS})
    assert handle.wait(patience(60)).succeeded
    assert sorted(int(body.notes["amount"]) for body in recorder.intervals("run posted")) == list(
        range(100, rows + 1, 100)
    )


def test_u19_all_elements_run_and_the_collector_has_the_failures(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    outcome = Lenient.enqueue(items=["a", "bad", "c"]).wait(patience(20))
    assert outcome.succeeded, outcome.failure
    assert outcome.value == ["a", "ValueError", "c"]


def test_u104_the_value_with_which_an_element_halts_is_kept(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    outcome = Halting.enqueue(items=["a", "stop", "c"]).wait(patience(20))
    assert (outcome.status, outcome.value, outcome.execution.reason) == ("halted", {"at": "stop"}, "enough")


def test_u18_values_that_are_large_together_stay_in_their_rows(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3, settings={"REACTOR_COORD": SETTINGS})
    outcome = LargeMap.enqueue(items=[str(number) for number in range(60)]).wait(patience(60))
    assert outcome.succeeded, outcome.failure
    assert len(outcome.value) == 60
    assert list(outcome.value) == [f"{number:0200}" for number in range(60)]
