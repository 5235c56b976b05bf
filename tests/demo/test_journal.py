"""The witness of the demo: what it says of overlaps is what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo_project.payments import journal
from demo_project.payments.journal import Mark, Span


def _mark(mark: str, at: float, execution: str = "x", pid: int = 1) -> Mark:
    return Mark(mark, "charge", execution, 1, pid, at)


def test_begin_and_end_make_a_span_and_a_killed_body_none() -> None:
    marks = [_mark("begin", 1), _mark("written", 1.5), _mark("begin", 3, pid=2), _mark("end", 4, pid=2)]
    assert journal.spans(marks) == [Span("charge", "x", 1, 2, 3, 4)]


def test_overlap_is_positive_only_when_both_ran() -> None:
    first = Span("charge", "x", 1, 1, 1.0, 2.0)
    assert first.overlap(Span("charge", "y", 1, 1, 1.5, 3.0)) == 0.5
    assert first.overlap(Span("charge", "y", 1, 1, 2.25, 3.0)) == -0.25


def test_marks_are_written_only_where_the_demo_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMO_JOURNAL", raising=False)
    journal.note("begin", "charge", "x", 1)
    path = tmp_path / "journal.jsonl"
    assert journal.read(path) == []
    monkeypatch.setenv("DEMO_JOURNAL", str(path))
    with journal.witnessed("charge", "x", 1):
        journal.note("written", "charge", "x", 1)
    assert [mark.mark for mark in journal.read(path)] == ["begin", "written", "end"]


def test_half_a_line_is_not_read_yet(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"mark": "begin", "body": "charge", "execution": "x", "account": 1, "pid": 1, "at": 1.0}\n{"mark"')
    assert len(journal.read(path)) == 1
