"""The ordered lock at a step and at a reactor, in process: whose turn it is after a failure, a retry, a cancellation, a park."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord import (
    Input,
    Retry,
    Step,
    async_step,
    compose,
    operations,
    step,
    testing,
    with_lock,
    with_ordered_lock,
)
from reactor_coord.coordination import inspect, ordered_lines
from reactor_coord.coordination.ordered import LineView
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import Background, eventually, failure, row, runs, told, trace
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_ordered_lock("{key}", poison_pill_timeout=30)
class Posted(Work):
    key = Input(str)
    retry = Retry(max_attempts=3, backoff="fixed", base_delay=0.3)


@with_ordered_lock("{key}", poison_pill_timeout=0.3, ttl=0.4)
class BrieflyPosted(Work):
    key = Input(str)
    retry = Retry(max_attempts=2, backoff="fixed", base_delay=1.2)


@with_ordered_lock("{key}", strict=False, poison_pill_timeout=0.4)
class LivelyPosted(Work):
    key = Input(str)


@with_ordered_lock("{key}", poison_pill_timeout=30)
@with_lock("{key}:lock", ttl=5)
class LockedPosted(Work):
    key = Input(str)


class Book(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    before = step(Work, seconds=0)
    post = step(Posted, after=before)
    behind = step(Work, seconds=0, after=post)


class BriefBook(Named):
    key = Input(str)
    post = step(BrieflyPosted)


class LivelyBook(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    post = step(LivelyPosted)


class LockedBook(Named):
    key = Input(str)
    post = step(LockedPosted)
    behind = step(Work, after=post)


@with_ordered_lock("{key}", poison_pill_timeout=30)
class WholeBook(Named):
    key = Input(str)
    lock_key = Input(str, default="free")
    first = step(Work)
    second = step(LockedPosted, key=lock_key, after=first)


class Library(Named):
    key = Input(str)
    book = compose(WholeBook)


class Handed(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    post = async_step(Posted, seconds=0)
    beside = step(Work, seconds=0)
    reader = step(Work, seconds=0, after=(post, beside))


def line(key: str = "k") -> LineView:
    return ordered_lines().view(key)


def names(recorder: Recorder, label: str = "run post") -> list[str]:
    return [body.notes["name"] for body in recorder.intervals(label)]


def arrive(reactor: Any, count: int, *, start: int = 0, **inputs: Any) -> list[Any]:
    """Enqueue so many and let each come as far as it can."""
    handles = []
    for number in range(start, start + count):
        handles.append(reactor.enqueue(name=str(number), key="k", **inputs))
        deliver(str(handles[-1].id), "test")
    return handles


class Someone:
    """Has the turn in a line as another process would, until it passes it on."""

    def __init__(self, key: str = "k", *, poison: float = 30.0) -> None:
        from reactor_coord.coordination import Requester, Turn

        who = Requester(owner="someone", claim="someone", execution="someone")
        turn = ordered_lines().enter(key, "someone", who, poison_timeout=poison, ttl=600)
        assert isinstance(turn, Turn)
        self.turn = turn

    def passes_on(self, *, failed: bool = False) -> None:
        from reactor_coord.runtime.dispatch import wake

        wake(ordered_lines().complete(self.turn.taken, failed=failed))


def test_d70_order_09_b080_out_of_turn_in_process_breaks_no_chain(reactor_dispatches: Any, recorder: Recorder) -> None:
    someone = Someone()
    begun = time.monotonic()
    second = Book.run(name="second", key="k")
    assert time.monotonic() - begun < 2
    assert (failure(second).step, failure(second).error_type) == ("post", "OutOfTurn")
    (third,) = arrive(Book, 1, start=3)
    assert third.status == "parked"
    someone.passes_on()
    testing.drain()
    assert third.status == "completed"
    assert names(recorder) == ["3"]
    assert Book.run(name="fourth", key="k").succeeded
    assert names(recorder) == ["3", "fourth"]
    assert line().is_drained


def test_order_08_it_is_not_taken_for_rollback(reactor_dispatches: Any, recorder: Recorder) -> None:
    first = Book.run(name="first", key="k", fail_at="behind")
    assert failure(first).rollback_failures == ()
    assert recorder.sequence() == ["run before", "run post", "run behind", "comp behind", "undo post", "undo before"]
    with_turn = Someone()
    handle = Book.enqueue(key="k", name="again", fail_at="behind")
    deliver(str(handle.id), "test")
    assert handle.status == "parked"
    handle.cancel()
    testing.drain()
    assert handle.status == "cancelled"
    assert [position.execution for position in line().in_flight] == ["someone"]
    with_turn.passes_on()


def test_d86_b078_a_retry_keeps_its_position_and_is_overtaken_by_nobody(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    handles = arrive(Book, 1, fail_at="post", fails=2)
    handles += arrive(Book, 3, start=1)
    assert [handle.status for handle in handles] == ["parked"] * 4
    assert line().in_flight[0].position == 1
    testing.drain(timeout=10)
    assert [handle.status for handle in handles] == ["completed"] * 4
    assert names(recorder) == ["0", "0", "0", "1", "2", "3"]
    positions = [event.data["position"] for event in trace(handles[0], "acquired", "adopted")]
    assert positions == [1, 1, 1]


def test_b078_after_a_failure_for_good_of_a_strict_line_the_later_ones_skip(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    handles = arrive(Book, 1, fail_at="post")
    handles += arrive(Book, 2, start=1)
    testing.drain(timeout=10)
    assert [handle.status for handle in handles] == ["failed", "completed", "completed"]
    assert names(recorder) == ["0"] * 3
    skipped = [runs(handle)["post"].reason for handle in handles[1:]]
    assert skipped == ["ordered_lock_chain_failed"] * 2


def test_b081_d71_a_retry_later_than_the_lines_ttl_and_the_poison_timeout_keeps_its_place(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    (first,) = arrive(BriefBook, 1, fail_at="post", fails=1)
    assert first.status == "parked"
    time.sleep(0.6)
    (second,) = arrive(BriefBook, 1, start=1)
    assert second.status == "parked"
    assert ordered_lines().tend() == ()
    testing.drain(timeout=10)
    assert [first.status, second.status] == ["completed", "completed"]
    assert names(recorder) == ["0", "0", "1"]


def test_d103_a_body_longer_than_the_poison_timeout_is_not_passed(reactor_dispatches: Any, recorder: Recorder) -> None:
    slow = Background(lambda: LivelyBook.run(name="slow", key="k", seconds=1.2))
    recorder.wait_for("run post")
    (second,) = arrive(LivelyBook, 1, start=1)
    time.sleep(0.7)
    ordered_lines().tend()
    deliver(str(second.id), "test")
    assert second.status == "parked"
    assert slow.result().succeeded
    testing.drain(timeout=5)
    assert second.status == "completed"
    assert recorder.max_concurrency("run post") == 1


def test_d72_order_06_a_dead_position_is_freed_within_the_poison_timeout(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    Someone(poison=0.3)  # and is never seen again
    (second,) = arrive(LivelyBook, 1, start=1)
    assert second.status == "parked"
    begun = time.monotonic()
    eventually(lambda: _swept(second), within=2)
    assert time.monotonic() - begun < 1
    assert names(recorder) == ["1"]


def _swept(handle: Any) -> bool:
    from reactor_coord.runtime.dispatch import wake

    wake(ordered_lines().tend())
    testing.drain()
    return bool(handle.status == "completed")


def test_d98_the_next_is_woken_when_the_one_before_passes(reactor_dispatches: Any, recorder: Recorder) -> None:
    someone = Someone()
    (second,) = arrive(Book, 1, start=1)
    waits_until = row(second).resume_at
    assert waits_until is not None
    assert (waits_until - row(second).updated_at).total_seconds() < 12  # the net, far below the poison timeout
    reactor_dispatches.clear()
    someone.passes_on()
    assert [(each.execution_id, each.countdown) for each in reactor_dispatches] == [(str(second.id), 0.0)]


def test_d99_redelivered_after_the_line_drained_it_runs_nothing_and_moves_nothing(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    (first,) = arrive(Book, 1)
    assert line().is_drained
    someone = Someone()
    deliver(str(first.id), "test")
    deliver(str(first.id), "test")
    (second,) = arrive(Book, 1, start=1)
    assert second.status == "parked"
    assert line().next == 1
    assert names(recorder) == ["0"]
    someone.passes_on()
    testing.drain()
    assert names(recorder) == ["0", "1"]


def test_d101_an_ordered_reactor_run_twice_in_process_is_drained_after_each(recorder: Recorder) -> None:
    for number in range(2):
        assert WholeBook.run(name=str(number), key="k").succeeded
        assert line().is_drained
    assert names(recorder, "run first") == ["0", "1"]


def test_d102_a_position_that_gave_up_on_contention_passes_on_as_failed(
    reactor_dispatches: Any, reactor_settings: Any, recorder: Recorder
) -> None:
    reactor_settings(SNOOZE_MAX_ATTEMPTS=1, SNOOZE_BASE_DELAY=0.05, SNOOZE_MAX_DELAY=0.05, SNOOZE_JITTER=0)
    with testing.hold("k:lock"):
        handles = arrive(LockedBook, 2)
        testing.drain(timeout=5)
        assert handles[0].status == "failed"
        assert (row(handles[0]).failure or {})["error_type"] == "ContentionCeilingReached"
    testing.drain(timeout=5)
    assert handles[1].status == "completed"
    assert runs(handles[1])["post"].reason == "ordered_lock_chain_failed"
    assert line().is_drained
    assert LockedBook.run(key="k").succeeded


def test_a_turn_kept_while_a_lock_is_waited_for_is_not_passed_over_before_its_next_look(
    reactor_dispatches: Any, reactor_settings: Any, recorder: Recorder
) -> None:
    @with_ordered_lock("{key}", strict=False, poison_pill_timeout=0.2)
    @with_lock("{key}:lock", ttl=5)
    class Impatient(Work):
        key = Input(str)

    class ImpatientBook(Named):
        __qualname__ = "ImpatientBook"
        key = Input(str)
        post = step(Impatient)

    globals()["ImpatientBook"] = ImpatientBook
    reactor_settings(SNOOZE_BASE_DELAY=1.0, SNOOZE_JITTER=0)
    with testing.hold("k:lock"):
        arrive(ImpatientBook, 2)
        time.sleep(0.5)
        assert ordered_lines().tend() == ()
        assert line().next == 1
    testing.drain(timeout=5)
    assert names(recorder) == ["0", "1"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_b082_a_cancelled_waiter_gives_its_position_back(
    which: int, reactor_dispatches: Any, recorder: Recorder
) -> None:
    someone = Someone()
    handles = arrive(Book, 3)
    assert len(line().in_flight) == 4
    handles[which].cancel()
    assert len(line().in_flight) == 3
    testing.drain()
    assert handles[which].status == "cancelled"
    someone.passes_on()
    testing.drain()
    left = [handle for number, handle in enumerate(handles) if number != which]
    assert [handle.status for handle in left] == ["completed"] * 2
    assert names(recorder) == [str(number) for number in range(3) if number != which]
    assert line().is_drained


@pytest.mark.parametrize("reactor", [WholeBook, Library])
def test_b082_a_cancelled_reactor_gives_the_position_back_that_it_kept_while_parked(
    reactor: Any, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("free:lock"):
        first, second = reactor.enqueue(name="0", key="k"), reactor.enqueue(name="1", key="k")
        testing.drain()
        assert [first.status, second.status] == ["parked"] * 2
        first.cancel()
        testing.drain()
        assert first.status == "cancelled"
        assert [position.state for position in line().in_flight] == ["paused"]
    testing.drain()
    assert second.status == "completed"
    assert names(recorder, "run second") == ["1"]


def test_b082_a_reactor_cancelled_before_it_began_leaves_the_line(reactor_dispatches: Any, recorder: Recorder) -> None:
    handles = [WholeBook.enqueue(name=str(number), key="k") for number in range(3)]
    assert [position.execution for position in line().in_flight] == [str(handle.id) for handle in handles]
    handles[0].cancel()
    assert [position.execution for position in line().in_flight] == [str(handle.id) for handle in handles[1:]]
    testing.drain()
    assert [handle.status for handle in handles] == ["cancelled", "completed", "completed"]
    assert names(recorder, "run first") == ["1", "2"]


def test_b082_a_failed_reactor_passes_its_position_on_as_failed(reactor_dispatches: Any, recorder: Recorder) -> None:
    handles = [WholeBook.enqueue(name=str(number), key="k", fail_at="first" * (not number)) for number in range(2)]
    testing.drain()
    assert [handle.status for handle in handles] == ["failed", "halted"]
    assert row(handles[1]).reason == "ordered_lock_chain_failed"
    assert line().is_drained


def test_b076_a_blocked_key_stops_no_other(reactor_dispatches: Any, recorder: Recorder) -> None:
    someone = Someone("k3")
    handles = [(key, Book.enqueue(name=f"{key}.{number}", key=f"k{key}")) for number in range(4) for key in range(6)]
    testing.drain()
    assert {key for key, handle in handles if handle.status == "parked"} == {3}
    for key in range(6):
        served = [name for name in names(recorder) if name.startswith(f"{key}.")]
        assert served == ([] if key == 3 else [f"{key}.{number}" for number in range(4)])
    someone.passes_on(failed=True)
    testing.drain()
    assert all(handle.status == "completed" for _, handle in handles)
    assert not [name for name in names(recorder) if name.startswith("3.")]  # strict: skipped after the failed one


def test_b077_retried_in_bulk_they_run_one_by_one_in_the_order_of_the_retries(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    """A retry is a new execution: its position is that of its enqueueing. In bulk they are enqueued oldest first."""
    handles = [WholeBook.enqueue(name=str(number), key=f"k{number}", fail_at="second") for number in range(5)]
    testing.drain(timeout=5)
    assert [handle.status for handle in handles] == ["failed"] * 5
    recorder.clear()
    for execution in Execution.objects.filter(pk__in=[handle.id for handle in handles]).order_by("pk"):
        operations.retry(execution)
    testing.drain(timeout=5)
    assert names(recorder, "run first") == [str(number) for number in range(5)]
    assert recorder.max_concurrency("run first") == 1


def test_d76_a_unit_keeps_its_position_on_its_own_record(reactor_dispatches: Any, recorder: Recorder) -> None:
    someone = Someone()
    handle = Handed.enqueue(name="0", key="k")
    testing.drain()
    unit = Execution.objects.exclude(pk=handle.id).get()
    assert (unit.status, (unit.waiting_on or {})["position"]) == ("parked", 2)
    assert row(handle).status == "parked"
    assert (row(handle).waiting_on or {}).get("primitive", "") == ""
    later = arrive(Book, 1, start=1)
    for _ in range(2):
        deliver(str(unit.pk), "test")
    unit.refresh_from_db()
    assert (unit.waiting_on or {})["position"] == 2
    someone.passes_on()
    testing.drain()
    assert handle.status == later[0].status == "completed"
    assert names(recorder) == ["0", "1"]


def test_d84_at_the_ceiling_what_the_reactor_kept_over_its_parks_is_free(
    reactor_dispatches: Any, reactor_settings: Any, recorder: Recorder
) -> None:
    reactor_settings(SNOOZE_MAX_ATTEMPTS=1, SNOOZE_BASE_DELAY=0.05, SNOOZE_MAX_DELAY=0.05, SNOOZE_JITTER=0)
    with testing.hold("inner"):
        handle = Guarding.enqueue(key="k")
        testing.drain()
        testing.assert_locked("k", by=handle.execution)
        testing.drain(timeout=5)
        assert handle.status == "failed"
        testing.assert_free("k")


@with_lock("{key}", ttl=60)
class Guarding(Named):
    """A lock around a step that waits for another."""

    key = Input(str)

    @step()
    @with_lock("inner", ttl=5)
    def inner() -> None:
        """Nothing."""


def test_a_cancelled_reactor_frees_what_it_kept_though_nothing_is_undone_under_it(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("inner"):
        handle = Guarding.enqueue(key="k")
        testing.drain()
        testing.assert_locked("k", by=handle.execution)
        handle.cancel()
        testing.drain()
        assert handle.status == "cancelled"
        testing.assert_free("k")
    assert not inspect.line("inner")


def test_d111_what_lapsed_over_a_park_is_competed_for_and_told_anew(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("inner"):
        handle = Guarding.enqueue(key="k")
        testing.drain()
        (hold,) = [each for each in inspect.holds() if each.key == "k"]
        operations.release_key("k", fence=hold.fence)
        with testing.hold("k"):
            deliver(str(handle.id), "test")
            assert (row(handle).waiting_on or {})["key"] == "k"
    testing.drain(timeout=5)
    assert handle.status == "completed"
    assert [key for kind, _, key in told(handle, "acquired")] == ["k", "k", "inner"]


class Chooser(Step):
    """A key from an argument with a default: the same on every way."""

    region = Input(str, default="north")


def test_d91_a_key_from_a_default_is_one_key_on_every_way(recorder: Recorder) -> None:
    seen: list[tuple[str, str, list[str]]] = []

    @with_lock("region:{region}", ttl=5)
    class Noting(Chooser):
        fails_now = Input(bool, default=False)

        def run(self) -> str:
            seen.append(("run", self.region, sorted(key for _, key in self.context.holds)))
            if self.fails_now:
                raise ValueError
            return self.region

        def compensate(self, error: BaseException) -> None:
            seen.append(("comp", self.region, sorted(key for _, key in self.context.holds)))

        def undo(self, result: str) -> None:
            seen.append(("undo", self.region, sorted(key for _, key in self.context.holds)))

    class Regional(Named):
        first = step(Noting, fails_now=False)
        second = step(Noting, fails_now=True, after=first)

    outcome = Regional.run()
    assert outcome.failed
    assert seen == [
        ("run", "north", ["region:north"]),
        ("run", "north", ["region:north"]),
        ("comp", "north", ["region:north"]),
        ("undo", "north", ["region:north"]),
    ]
    keys = {key for _, _, key in told(outcome, "acquired")}
    assert keys == {"region:north"}
