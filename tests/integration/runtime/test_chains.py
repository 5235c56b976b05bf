"""A strict line behind a failed position: who skips, for how long, and what heals it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reactor_coord import DefinitionError, Input, Reactor, async_step, compose, step, testing, with_ordered_lock
from reactor_coord.coordination import ordered_lines
from reactor_coord.models import Execution
from reactor_coord.operations import reset_line, views
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import runs
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

CHAIN_FAILED = "ordered_lock_chain_failed"
AGES = 3600


@with_ordered_lock("{key}")
class Plain(Work):
    key = Input(str)


@with_ordered_lock("{key}", chain_ttl=timedelta(hours=1))
class Chained(Work):
    key = Input(str)


@with_ordered_lock("{key}", chain_ttl=0.3)
class BrieflyChained(Work):
    key = Input(str)


class Book(Named):
    key = Input(str, default="k")
    post = step(Plain)


class ChainedBook(Named):
    key = Input(str, default="k")
    post = step(Chained)


class BriefBook(Named):
    key = Input(str, default="k")
    post = step(BrieflyChained)


class Shelf(Named):
    """The same in a child."""

    key = Input(str, default="k")
    book = compose(ChainedBook)


@with_ordered_lock("{key}", chain_ttl=AGES)
class WholeBook(Named):
    key = Input(str, default="k")
    post = step(Work)


class Handed(Named):
    """The same in a worker of its own."""

    key = Input(str, default="k")
    post = async_step(Chained)
    behind = step(Work, fail_at="", after=post)


CHAINED: list[type[Reactor]] = [ChainedBook, Shelf, WholeBook, Handed]


def run(reactor: type[Reactor], **inputs: Any) -> Execution:
    """In a worker, to its end."""
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.execution


def was_skipped(execution: Execution) -> bool:
    """Whether the chain kept it from posting."""
    rows = Execution.objects.filter(pk=execution.pk) | Execution.objects.filter(parent=execution)
    reasons = {row.reason for row in rows} | {
        each.reason for row in rows for each in runs(Has(row)).values() if each.status == "skipped"
    }
    return CHAIN_FAILED in reasons


class Has:
    """Names an execution, for `runs`."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution


def test_u117_who_is_queued_behind_a_failed_position_skips_and_a_drained_line_starts_afresh(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k", "ordered_lock") as turn:
        queued = [Book.enqueue(name=str(number)) for number in range(2)]
        for handle in queued:
            deliver(str(handle.id), "test")
            assert handle.status == "parked"
        turn.fail()
    testing.drain()
    assert [was_skipped(handle.execution) for handle in queued] == [True, True]
    assert ordered_lines().view("k").is_drained
    assert not was_skipped(run(Book, name="a moment later"))
    assert recorder.count("run post") == 1


@pytest.mark.parametrize("reactor", CHAINED)
def test_u117_with_chain_ttl_a_drained_line_stays_failed(
    reactor: type[Reactor], reactor_dispatches: Any, recorder: Recorder
) -> None:
    failed = run(reactor, fail_at="post")
    assert failed.status == "failed"
    assert was_skipped(run(reactor, name="later"))
    (line,) = views.lines().rows
    assert (line.key, line.failed_by) == ("k", str(failed.pk))
    assert line.in_flight == ()
    assert line.failed_until is not None
    assert recorder.count("run post") == 1


@pytest.mark.parametrize("reactor", CHAINED)
def test_u117_a_retry_that_succeeds_heals_it(
    reactor: type[Reactor], reactor_dispatches: Any, recorder: Recorder
) -> None:
    failed = run(reactor, fail_at="post")
    _repair(failed)
    handle = failed.retry()
    testing.drain()
    assert handle.status == "completed"
    assert not was_skipped(handle.execution)
    assert views.lines().rows == ()
    assert not was_skipped(run(reactor, name="later"))


def _repair(failed: Execution) -> None:
    """The inputs of the retry are those of the failed one: it shall not fail at them again."""
    failed.inputs = {**failed.inputs, "fail_at": ""}
    failed.save(update_fields=["inputs"])


def test_u117_a_retry_that_fails_leaves_it_failed_and_its_own_retry_heals_it(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    failed = run(ChainedBook, fail_at="post")
    again = failed.retry()
    testing.drain()
    assert again.status == "failed"
    assert not was_skipped(again.execution)
    assert was_skipped(run(ChainedBook, name="later"))
    assert views.lines().rows[0].failed_by == str(again.id)
    _repair(again.execution)
    last = again.execution.retry()
    testing.drain()
    assert last.status == "completed"
    assert not was_skipped(run(ChainedBook, name="last"))


def test_u117_a_retry_of_another_does_not(reactor_dispatches: Any, recorder: Recorder) -> None:
    other = run(Book, key="other", fail_at="post")
    other.inputs = {**other.inputs, "key": "k", "fail_at": ""}
    other.save(update_fields=["inputs"])
    run(ChainedBook, fail_at="post")
    handle = other.retry()
    testing.drain()
    assert was_skipped(handle.execution)
    assert was_skipped(run(ChainedBook, name="later"))


def test_u117_in_a_line_that_is_not_drained_a_retry_runs_too(reactor_dispatches: Any, recorder: Recorder) -> None:
    failed = run(Book, fail_at="post")
    _repair(failed)
    with testing.hold("k", "ordered_lock") as turn:
        assert turn.position == 1
        turn.fail()
    assert not was_skipped(run(Book))  # drained: afresh
    with testing.hold("k", "ordered_lock"):
        first = Book.enqueue(name="first", fail_at="post")
        deliver(str(first.id), "test")
        second = Book.enqueue(name="second")
        deliver(str(second.id), "test")
        third = Book.enqueue(name="third")
        deliver(str(third.id), "test")
    deliver(str(first.id), "test")
    assert first.status == "failed"
    _repair(first.execution)
    retry = first.execution.retry()
    deliver(str(retry.id), "test")
    testing.drain()
    assert was_skipped(second.execution)
    assert was_skipped(third.execution)
    assert not was_skipped(retry.execution)


def test_u117_an_operators_reset_heals_it(reactor_dispatches: Any, recorder: Recorder) -> None:
    run(ChainedBook, fail_at="post")
    (line,) = views.lines().rows
    assert not reset_line("k", epoch=line.epoch - 1)
    assert reset_line("k", epoch=line.epoch, reason="posted by hand")
    assert views.lines().rows == ()
    assert not was_skipped(run(ChainedBook))


def test_u117_after_its_time_it_is_healed_by_itself(reactor_dispatches: Any, recorder: Recorder) -> None:
    from tests.integration.runtime.support import eventually

    run(BriefBook, fail_at="post")
    assert was_skipped(run(BriefBook))
    eventually(lambda: not ordered_lines().view("k").failed_until)
    assert not was_skipped(run(BriefBook))
    assert ordered_lines().tend() == ()
    assert views.lines().rows == ()


def test_u117_in_process_it_is_said_and_told(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    outcome = ChainedBook.run(fail_at="post")
    assert outcome.failed
    (line,) = [each for each in caplog.messages if "chain_failed" in each]
    assert "reactor=ChainedBook step=post key=k" in line
    later = ChainedBook.run()
    assert runs(later)["post"].reason == CHAIN_FAILED


@pytest.mark.parametrize("options", [{"chain_ttl": 60, "strict": False}, {"chain_ttl": 0}, {"chain_ttl": "1h"}])
def test_u117_what_cannot_mean_anything_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="chain_ttl"):
        with_ordered_lock("{key}", **options)
