"""A failing step's own clean-up, under the exclusivity of the step."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import PatientPayment

pytestmark = pytest.mark.django_db(transaction=True)


def test_rollback_03_nobody_enters_the_forward_body_while_its_compensation_runs(recorder: Recorder) -> None:
    def run(name: str, fail_at: str) -> None:
        try:
            PatientPayment.run(name=name, key="k", fail_at=fail_at, undo_seconds=1.0, seconds=0.2)
        finally:
            connection.close()

    failing = threading.Thread(target=run, args=("failing", "charge"))
    failing.start()
    recorder.wait_for("comp charge")
    other = threading.Thread(target=run, args=("other", ""))
    other.start()
    failing.join()
    other.join()
    assert recorder.count("comp charge") == 1
    assert recorder.count("run charge") == 2
    assert not recorder.overlaps("comp charge", "run charge")
    compensation = recorder.intervals("comp charge")[0]
    assert compensation.left - compensation.entered >= 1.0
