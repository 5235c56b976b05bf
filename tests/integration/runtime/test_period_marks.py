"""A period's mark lists what succeeded in its bucket; what is undone takes its own success back, and no other's."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from reactor_coord import (
    DefinitionError,
    Input,
    Step,
    async_step,
    compose,
    element,
    map_each,
    step,
    testing,
    with_period,
)
from reactor_coord.coordination import periods
from reactor_coord.models import Execution
from reactor_coord.operations import verbs
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import at_once, eventually, failure, killed, left_undone, runs
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

DECADE = 315_360_000


@with_period("{key}:report", every=DECADE)
class Reported(Work):
    key = Input(str)


@with_period("{key}:kept", every=DECADE, keep_mark=True)
class Kept(Work):
    key = Input(str)


class Report(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    undo_fail_at = Input(str, default="")
    report = step(Reported)
    behind = step(Work, seconds=0, after=report)


class KeptReport(Named):
    key = Input(str)
    report = step(Kept)
    behind = step(Work, after=report)


@with_period("{key}:whole", every=DECADE)
class Whole(Named):
    key = Input(str)
    undo_fail_at = Input(str, default="")
    first = step(Work)


class Around(Named):
    key = Input(str)
    whole = compose(Whole, coordination=[with_period("{key}:around", every=DECADE)])
    behind = step(Work, after=whole)


def listed(key: str) -> list[tuple[str, ...]]:
    return [mark.runs for mark in periods().marks(key)]


def test_u107_what_a_later_failure_undoes_leaves_its_bucket_free(recorder: Recorder) -> None:
    assert Report.run(key="k", fail_at="behind").failed
    assert recorder.sequence()[-1] == "undo report"
    assert listed("k:report") == []
    again = Report.run(key="k")
    assert runs(again)["report"].status == "succeeded"
    assert listed("k:report") == [(f"{again.execution.pk}/report",)]


def test_u107_what_an_operator_undoes_leaves_its_bucket_free(reactor_dispatches: Any, recorder: Recorder) -> None:
    outcome = Report.run(key="k")
    outcome.execution.undo()
    testing.drain()
    assert listed("k:report") == []
    outcome = Whole.run(key="k")
    assert listed("k:whole") == [(f"{outcome.execution.pk}/",)]
    outcome.execution.undo()
    testing.drain()
    assert listed("k:whole") == []
    assert Whole.run(key="k").succeeded


def test_u107_of_several_that_succeeded_in_it_an_undo_takes_back_its_own_only(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    """Alone, two that arrive at the same time both run."""
    first, second = at_once(*[partial(Report.run, key="k", seconds=0.5) for _ in range(2)])
    (both,) = listed("k:report")
    assert sorted(both) == sorted(f"{each.execution.pk}/report" for each in (first, second))
    for _ in range(2):  # repeatably
        first.execution.refresh_from_db()
        if first.execution.status == "completed":
            first.execution.undo()
            testing.drain()
        else:
            periods().unmark("k:report", f"{first.execution.pk}/report")
        assert listed("k:report") == [(f"{second.execution.pk}/report",)]
        assert runs(Report.run(key="k"))["report"].reason == "period"
    second.execution.undo()
    testing.drain()
    assert listed("k:report") == []
    assert runs(Report.run(key="k"))["report"].status == "succeeded"


def test_u107_an_undo_that_fails_keeps_the_mark_until_it_succeeds(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: Any
) -> None:
    outcome = Report.run(key="k", fail_at="behind", undo_fail_at="report")
    assert left_undone(outcome) == ["report"]
    assert listed("k:report") == [(f"{outcome.execution.pk}/report",)]
    monkeypatch.setattr(Reported, "undo", lambda self, result: None)
    Execution.objects.get(pk=outcome.execution.pk).undo()
    testing.drain()
    assert listed("k:report") == []


def test_u107_with_keep_mark_the_bucket_stays_marked(recorder: Recorder) -> None:
    outcome = KeptReport.run(key="k", fail_at="behind")
    assert outcome.failed
    assert listed("k:kept") == [(f"{outcome.execution.pk}/report",)]
    assert runs(KeptReport.run(key="k"))["report"].reason == "period"
    with pytest.raises(DefinitionError, match="keep_mark"):
        with_period("k", keep_mark="yes")  # type: ignore[arg-type]


def test_u107_an_undone_child_leaves_its_buckets_free(recorder: Recorder) -> None:
    assert Around.run(key="k", fail_at="behind").failed
    assert listed("k:whole") == listed("k:around") == []
    again = Around.run(key="k")
    assert runs(again)["whole"].status == "succeeded"
    assert len(listed("k:whole")) == len(listed("k:around")) == 1


class Handed(Named):
    key = Input(str)
    keys = Input(list[str], default=["a", "b"])
    report = async_step(Reported, key=key)
    each = map_each(Reported, over=keys, key=element(), after=report)
    behind = step(Work, after=(report, each))


def test_u107_undone_work_of_another_worker_leaves_its_bucket_free(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = Handed.enqueue(key="k", fail_at="behind")
    testing.drain()
    assert handle.status == "failed"
    assert recorder.count("undo report") == 1
    assert recorder.count("undo each") == 2
    assert [listed(f"{key}:report") for key in ("k", "a", "b")] == [[], [], []]


def test_u107_killed_between_the_mark_and_the_row_the_undo_is_repeated(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    """What another run marks meanwhile stays its own."""
    row = killed(lambda: Report.run(key="k", fail_at="behind"), "checkpoint.before", 3)
    assert recorder.sequence() == ["run report", "run behind", "comp behind", "undo report"]
    assert listed("k:report") == []
    other = Report.run(key="k")
    verbs.resume(row)
    testing.drain()
    row.refresh_from_db()
    assert row.status == "failed"
    assert recorder.sequence()[-1] == "undo report"
    assert listed("k:report") == [(f"{other.execution.pk}/report",)]


def test_u107_with_redis_away_it_is_taken_back_when_it_answers_again(
    recorder: Recorder, redis_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reported, "undo", lambda self, result: redis_proxy.refuse())
    outcome = Report.run(key="k", fail_at="behind")
    assert failure(outcome).rollback_failures == ()
    redis_proxy.refuse(False)
    eventually(lambda: listed("k:report") == [])


def test_a_step_that_has_no_undo_keeps_its_bucket(recorder: Recorder) -> None:
    """Its effect stands, so it is not to happen again in this bucket."""

    @with_period("{key}:mailed", every=DECADE)
    class Mailed(Step):
        key = Input(str)

        def run(self) -> str:
            return "mailed"

    class Mailing(Named):
        key = Input(str)
        mail = step(Mailed)
        behind = step(Work, after=mail)

    assert Mailing.run(key="k", fail_at="behind").failed
    assert len(listed("k:mailed")) == 1


def test_a_mark_of_an_earlier_version_still_counts_and_is_taken_back_by_an_operator(recorder: Recorder) -> None:
    import json

    bucket, _ = periods().look("k:report", DECADE, "UTC")
    periods().mark("k:report", bucket, "new")
    old = json.dumps({"by": "old", "at": 1.0, "ends_at": bucket.ends_at.timestamp()})
    periods()._connection.client.hset(periods()._marks("k:report"), bucket.name, old)
    assert listed("k:report") == [("old",)]
    assert runs(Report.run(key="k"))["report"].reason == "period"
    periods().mark("k:report", bucket, "new")
    assert listed("k:report") == [("old", "new")]
    assert not periods().free("k:report", bucket.name, "new")
    assert periods().free("k:report", bucket.name, "old")
    assert listed("k:report") == []
