"""The period against a plain model: a bucket lists each success once, and is free when none is left; another bucket, key or
length is another matter.

Buckets of other times are marked as by somebody who began then; what is long over is forgotten, what is not stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from reactor_coord.coordination import Locks
from reactor_coord.coordination.period import AFTERLIFE, Bucket, Periods, bucket_at

KEYS = ("k", "{odd} key\n")
LENGTHS: tuple[str | float, ...] = ("year", 315_360_000)
PEOPLE = ("A", "B", "call:C")
RUNS = ("A/report", "A/close", "B/", "call:C")
DAYS = (-400, -30, -2, -1, 0, 1, 400)


class Model(RuleBasedStateMachine):
    """Two keys. What is marked, by whom, and until when it counts."""

    periods: Periods

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[str, dict[str, tuple[list[str], datetime]]] = {key: {} for key in KEYS}

    @initialize()
    def clean(self) -> None:
        client = self.periods._connection.client
        for name in client.keys(f"{self.periods._names.prefix}:*"):
            client.delete(name)

    @rule(key=st.sampled_from(KEYS), every=st.sampled_from(LENGTHS))
    def look(self, key: str, every: str | float) -> None:
        bucket, mark = self.periods.look(key, every, "UTC")
        assert bucket == bucket_at(datetime.now(UTC), every, "UTC")
        expected = self.marks[key].get(bucket.name)
        assert (mark and list(mark.runs)) == (expected and expected[0])
        assert mark is None or mark.by == mark.runs[0].partition("/")[0]

    @rule(key=st.sampled_from(KEYS), every=st.sampled_from(LENGTHS), by=st.sampled_from(RUNS), twice=st.booleans())
    def mark(self, key: str, every: str | float, by: str, twice: bool) -> None:
        bucket, _ = self.periods.look(key, every, "UTC")
        for _ in range(1 + twice):
            self.mark_bucket(key, bucket, by)

    @rule(key=st.sampled_from(KEYS), days=st.sampled_from(DAYS), by=st.sampled_from(RUNS))
    def mark_of_another_day(self, key: str, days: int, by: str) -> None:
        """Who began in a bucket and ends after it marks that one."""
        self.mark_bucket(key, bucket_at(datetime.now(UTC) + timedelta(days=days), "day", "UTC"), by)

    def mark_bucket(self, key: str, bucket: Bucket, by: str) -> None:
        self.periods.mark(key, bucket, by)
        now = datetime.now(UTC)
        kept = {name: mark for name, mark in self.marks[key].items() if mark[1] + AFTERLIFE > now}
        runs, _ = kept.setdefault(bucket.name, ([], bucket.ends_at))
        runs += [by] if by not in runs else []
        self.marks[key] = kept

    @rule(key=st.sampled_from(KEYS), by=st.sampled_from(PEOPLE), data=st.data())
    def an_operator_frees(self, key: str, by: str, data: st.DataObject) -> None:
        alive = [name for name, mark in self.marks[key].items() if mark[1] + AFTERLIFE > datetime.now(UTC)]
        if alive:
            name = data.draw(st.sampled_from(sorted(alive)))
            is_that_ones = self.marks[key][name][0][0].partition("/")[0] == by
            assert self.periods.free(key, name, by) is is_that_ones
            if is_that_ones:
                del self.marks[key][name]

    @rule(key=st.sampled_from(KEYS), by=st.sampled_from(RUNS), twice=st.booleans())
    def undone(self, key: str, by: str, twice: bool) -> None:
        """It takes its own successes back, in whatever bucket, however often."""
        now = datetime.now(UTC)
        alive = {name for name, (_, ends_at) in self.marks[key].items() if ends_at + AFTERLIFE > now}
        was_in = {name for name, (runs, _) in self.marks[key].items() if by in runs}
        assert len(was_in & alive) <= self.periods.unmark(key, by) <= len(was_in)
        assert not twice or self.periods.unmark(key, by) == 0
        left = {name: ([run for run in runs if run != by], at) for name, (runs, at) in self.marks[key].items()}
        self.marks[key] = {name: mark for name, mark in left.items() if mark[0]}

    @invariant()
    def the_server_agrees(self) -> None:
        now = datetime.now(UTC)
        for key, marks in self.marks.items():
            found = {mark.bucket: list(mark.runs) for mark in self.periods.marks(key)}
            alive = {name: runs for name, (runs, ends_at) in marks.items() if ends_at + AFTERLIFE > now}
            assert {name: runs for name, runs in found.items() if name in alive} == alive
            assert set(found) <= set(marks)

    @invariant()
    def a_key_without_marks_is_in_no_list(self) -> None:
        listed = {key for key, _ in self.periods.survey()}
        now = datetime.now(UTC)
        assert listed == {key for key, marks in self.marks.items() if any(at > now for _, at in marks.values())}

    @invariant()
    def nothing_is_kept_for_ever(self) -> None:
        client = self.periods._connection.client
        for key in KEYS:
            assert client.pttl(self.periods._marks(key)) != -1


@pytest.mark.timeout(600)
def test_the_period_is_what_its_model_says(locks: Locks) -> None:
    class Bound(Model):
        pass

    Bound.periods = Periods(locks.connection, locks.names)
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
    run_state_machine_as_test(Bound, settings=settings(max_examples=80, stateful_step_count=30, **options))
