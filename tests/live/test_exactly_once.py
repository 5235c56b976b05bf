"""What was parked, woken and taken up runs exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Payment

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def test_park_02_each_body_runs_exactly_once(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    names = [str(number) for number in range(6)]
    handles = [Payment.enqueue(name=name, key="k", seconds=0.05) for name in names]
    assert all(handle.wait(20).succeeded for handle in handles)
    for step in ("audit", "charge", "notify"):
        ran = Counter(body.notes["name"] for body in recorder.intervals(f"run {step}"))
        assert ran == Counter(names)
