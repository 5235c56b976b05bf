"""One trace over processes: its context is in the row, and a message says what sent it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from tests.live import traced
from tests.live.reactors import Single
from tests.live.support import until, wait_all, wait_parked
from tests.support.spans import recorded_spans

pytestmark = pytest.mark.django_db(transaction=True)

FAR = {"SNOOZE_BASE_DELAY": 60, "SNOOZE_MAX_DELAY": 60}
"""Only the release wakes it."""


def _spans(lines: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]


def test_u96_an_execution_that_parks_is_one_trace_and_its_wake_names_the_release(
    live_worker: StartWorker, recorder: Recorder, tmp_path: Path
) -> None:
    lines = tmp_path / "spans"
    lines.touch()
    live_worker(concurrency=1, env={traced.ENVIRONMENT: str(lines)}, settings={"REACTOR_COORD": FAR})
    with recorded_spans() as ours:
        with testing.hold("k") as held:
            with ours.tracer.start_as_current_span("POST /checkout") as start:
                handle = Single.enqueue(key="k")
            wait_parked(handle)
            with ours.tracer.start_as_current_span("release") as release:
                held.release()
        wait_all([handle])

    def ended() -> list[dict[str, Any]]:
        return [span for span in _spans(lines) if span["name"] == "execute Single"]

    legs = until(lambda: found if len(found := ended()) == 2 else None, "both legs have ended")
    context = start.get_span_context()
    assert {span["context"]["trace_id"] for span in _spans(lines)} == {f"0x{context.trace_id:032x}"}
    assert {leg["parent_id"] for leg in legs} == {f"0x{context.span_id:016x}"}
    linked = [[link["context"]["span_id"] for link in leg["links"]] for leg in legs]
    assert linked == [[], [f"0x{release.get_span_context().span_id:016x}"]]
    names = sorted(span["name"] for span in _spans(lines))
    assert names == ["execute Single", "execute Single", "step Single.charge", "step Single.charge"]
