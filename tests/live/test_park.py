"""Contention parks, it does not fail: the park table, against a real worker whose net is too wide to catch anything.

`SNOOZE_BASE_DELAY` is a minute here: an execution that goes on in time was woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from django.db import transaction

from reactor_coord import operations, testing
from reactor_coord.coordination import inspect
from reactor_coord.runtime.dispatch import send
from reactor_coord.storage.ids import uuid7
from reactor_coord.testing import dispatches
from reactor_coord.testing.recorder import Interval, Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.reactors import (
    BodyFailed,
    EightSteps,
    Ending,
    FailFast,
    Gated,
    Guarded,
    Hasty,
    Odd,
    Outer,
    Overtaken,
    Single,
    SkipBusy,
    SlowRetry,
    WaitThenFail,
)
from tests.live.support import events, kinds, stamp, step_run, until, wait_all, wait_parked, waiters
from tests.support.holders import in_line_for
from tests.support.patience import LATE, PATIENCE, SLOWNESS

pytestmark = pytest.mark.django_db(transaction=True)

WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 60,
    "SNOOZE_MAX_DELAY": 60,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 5,
    "SWEEP_INTERVAL": 0.5,
    "LEASE_TTL": 5,
    "HANDOFF_GRACE": 1,
}


def test_park_01_and_02_the_loser_parks_and_both_complete_once(shared_worker: LiveWorker, recorder: Recorder) -> None:
    outcomes = wait_all([Single.enqueue(name=name, key="k", seconds=1.0) for name in "xy"])
    assert all(outcome.succeeded for outcome in outcomes)
    (park,) = [event for outcome in outcomes for event in events(outcome, "parked")]
    assert (park.step, park.primitive, park.key, park.data["park_kind"]) == ("charge", "lock", "k", "contention")
    assert not [event for outcome in outcomes for event in events(outcome, "compensated", "undone", "step_failed")]
    assert recorder.sequence() == ["run charge", "run charge"]
    assert not recorder.overlaps("run charge")


def test_park_06_the_reactors_own_key_stays_with_it(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("inner") as held:
        handle = Guarded.enqueue(outer_key="outer", key="inner")
        parked = wait_parked(handle)
        kept = inspect.look("outer").hold
        assert kept is not None
        assert (kept.owner, kept.state) == (str(handle.id), "parked")
        assert [each["key"] for each in parked.holds_kept] == ["outer"]
        held.release()
        outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    until(lambda: events(outcome, "released", key="outer"), "the last release was told, behind the end")
    assert len(events(outcome, "acquired", key="outer")) == 1
    assert len(events(outcome, "released", key="outer")) == 1
    assert events(outcome, "adopted", key="outer")
    assert recorder.sequence() == ["run before", "run charge", "run behind"]
    testing.assert_free("outer")


def test_park_09_a_park_two_levels_down_keeps_every_level(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """Without its rate limits, which have cases of their own."""
    with testing.hold("k") as held:
        handle = Outer.enqueue(outer_key="o", middle_key="m", key="k")
        wait_parked(handle)
        for key in ("o", "m"):
            testing.assert_locked(key, by=handle)
        assert recorder.sequence() == ["run open", "run prepare", "run audit"]
        held.release()
        outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    assert recorder.sequence() == [
        "run open", "run prepare", "run audit", "run charge", "run notify", "run close"
    ]  # fmt: skip
    for key in ("o", "m", "k"):
        until(lambda key=key: events(outcome, "released", key=key), f"the release of {key} was told")  # type: ignore[misc]
        assert len(events(outcome, "acquired", key=key)) == 1, key
        assert len(events(outcome, "released", key=key)) == 1, key
        testing.assert_free(key)


def test_park_10_woken_by_the_release_and_not_by_a_look(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """Held as long as the case has it, then twice more: other work on the machine may delay a wake, but hardly all of them."""
    waits = [_from_release_to_body(recorder, held_for) for held_for in (3, 0, 0)]
    assert max(waits) < LATE
    assert min(waits) < 0.5, waits


def _from_release_to_body(recorder: Recorder, held_for: float) -> float:
    recorder.clear()
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        parked = wait_parked(handle)
        assert parked.waiting_on is not None
        assert parked.waiting_on["place"] == 1
        time.sleep(held_for)
        assert [event.kind for event in events(handle, "parked")] == ["parked"]
        recorder.mark("released")
        held.release()
        assert handle.wait(PATIENCE).succeeded
    [released] = recorder.wait_for("released")
    [body] = recorder.wait_for("run charge")
    return body.entered - released.entered


def test_park_14_cancelled_in_line_it_makes_room(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        first = Single.enqueue(name="first", key="k")
        wait_parked(first)
        second = Single.enqueue(name="second", key="k")
        wait_parked(second)
        first.cancel("no longer wanted")
        assert waiters("k") == [str(second.id)]
        recorder.mark("released")
        held.release()
        assert second.wait(PATIENCE).succeeded
    assert first.wait(PATIENCE).status == "cancelled"
    [released] = recorder.wait_for("released")
    [body] = recorder.wait_for("run charge")
    assert body.notes["name"] == "second"
    assert body.entered - released.entered < LATE


def test_park_14_cancelled_with_the_key_in_its_hand_the_next_is_woken(
    shared_worker: LiveWorker, recorder: Recorder
) -> None:
    with testing.hold("k") as held:
        first = Single.enqueue(name="first", key="k")
        wait_parked(first)
        second = Single.enqueue(name="second", key="k")
        wait_parked(second)
        shared_worker.pause()
        held.release()  # granted to the first, whose message nobody takes
        first.cancel()
        granted = inspect.look("k").hold
        assert granted is not None
        assert (granted.owner, granted.state) == (str(second.id), "granted")
        shared_worker.resume()
        assert second.wait(PATIENCE).succeeded
    assert first.wait(PATIENCE).status == "cancelled"
    assert [body.notes["name"] for body in recorder.intervals("run charge")] == ["second"]


def test_park_16_the_first_message_is_lost(
    shared_worker: LiveWorker, reactor_settings: Callable[..., None], recorder: Recorder
) -> None:
    reactor_settings(DISPATCHER=dispatches.PATH, SWEEP_INTERVAL=0.5)
    handle = Single.enqueue(key="k")
    assert handle.wait(PATIENCE).succeeded
    assert recorder.sequence() == ["run charge"]


def test_scope_03_every_other_step_overlaps(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """scope_01, enqueued."""
    seconds = 0.2 * SLOWNESS  # on a slow machine the second begins later behind the first
    outcomes = wait_all([EightSteps.enqueue(name=name, key="k", seconds=seconds) for name in "ab"])
    assert all(outcome.succeeded for outcome in outcomes)
    bodies = recorder.intervals()
    first, second = recorder.intervals("run s3")
    assert not first.overlaps(second)
    ahead = [body for body in bodies if body.notes["name"] == first.notes["name"]]
    behind = [body for body in bodies if body.notes["name"] == second.notes["name"]]
    for body in ahead:
        if body.label != "run s3":  # the other one stands in line meanwhile
            assert any(body.overlaps(other) for other in behind), body.label
    one_after_the_other = _span(ahead) + _span(behind)
    assert _span(bodies) < one_after_the_other, "3.2 s and more, on an idle machine"


def _span(bodies: Sequence[Interval]) -> float:
    """From the first entering to the last leaving."""
    return max(body.left for body in bodies) - min(body.entered for body in bodies)


def test_scope_03_a_later_step_begins_while_another_waits(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """scope_02, enqueued: one more in line between the two keeps the key until A's step 4 has begun."""
    with testing.hold("k") as held:
        ahead = EightSteps.enqueue(name="a", key="k", seconds=0.05)
        wait_parked(ahead)
        with in_line_for("k", recorder, "between", until="run s4"):
            until(lambda: len(waiters("k")) == 2, "the one between in line")
            behind = EightSteps.enqueue(name="b", key="k", seconds=0.05)
            wait_parked(behind)
            held.release()
            assert all(outcome.succeeded for outcome in wait_all([ahead, behind]))
    a = {body.label: body for body in recorder.intervals() if body.notes.get("name") == "a"}
    b = {body.label: body for body in recorder.intervals() if body.notes.get("name") == "b"}
    (between,) = recorder.intervals("between")
    assert b["run s2"].left < a["run s4"].entered < b["run s3"].entered
    assert between.entered < a["run s8"].left, "the key was kept until the end of A, not of its step"


def test_u92_rollback_07_a_compensation_never_parks(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """Its hold lapsed under the body and is another's: it waits `rollback_wait`, then is listed."""
    handle = Overtaken.enqueue(key="k", seconds=2.0, fail_at="charge")
    recorder.wait_for("run charge")
    with testing.hold("k", wait=5):
        outcome = handle.wait(PATIENCE)
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("charge", "BodyFailed")
    assert "parked" not in kinds(outcome)
    [failed] = outcome.failure.rollback_failures
    assert (failed.step, failed.kind, failed.key, failed.reason) == (
        "charge", "compensate", "k", "coordination_unavailable"
    )  # fmt: skip
    assert recorder.sequence() == ["run audit", "run charge", "undo audit"]
    [told] = events(outcome, "undo_failed")
    assert 0.4 < stamp(told.at) - recorder.intervals("run charge")[0].left < 0.5 + LATE


def test_rollback_07_an_undo_never_parks(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handle = Hasty.enqueue(key="k", other_seconds=0.5, fail_at="notify")
    recorder.wait_for("run notify")
    with testing.hold("k"):
        outcome = handle.wait(PATIENCE)
    assert outcome.failed
    assert outcome.failure is not None
    assert "parked" not in kinds(outcome)
    [failed] = outcome.failure.rollback_failures
    assert (failed.step, failed.kind, failed.key, failed.reason) == ("charge", "undo", "k", "coordination_unavailable")
    assert recorder.sequence()[-2:] == ["comp notify", "undo audit"]
    [told] = events(outcome, "undo_failed")
    waited = stamp(told.at) - recorder.intervals("comp notify")[0].left
    assert 0.4 < waited < 0.5 + LATE


def test_seen_02_one_line_for_each_park(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        wait_parked(handle)
        held.release()
        assert handle.wait(PATIENCE).succeeded
    [line] = shared_worker.log_lines(rf"event=reactor_coord\.step\.parked .*execution={handle.id}")
    for pair in ("reactor=Single", "step=charge", "key=k", "primitive=lock", "attempt=1"):
        assert f" {pair} " in line


def test_seen_03_a_parked_execution_has_not_failed(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        parked = wait_parked(handle)
        assert parked.failure is None
        assert parked.waiting_on is not None
        assert (parked.waiting_on["step"], parked.waiting_on["key"]) == ("charge", "k")
        assert held.owner in parked.waiting_on["holder"]
        assert step_run(handle, "charge").status == "waiting"
        assert not {"failed", "step_failed", "rolling_back"} & set(kinds(handle))
    assert handle.wait(PATIENCE).succeeded


def test_seen_04_the_read_model_says_where_it_waits(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k"):
        first, second = Single.enqueue(key="k"), Single.enqueue(key="k")
        wait_parked(first)
        wait_parked(second)
        waiting = [handle.execution.waiting_on for handle in (first, second)]
        assert sorted(each["place"] for each in waiting if each) == [1, 2]
        for each in waiting:
            assert each is not None
            assert (each["step"], each["primitive"], each["key"], each["attempts"]) == ("charge", "lock", "k", 1)
            assert each["until"] > each["since"]
    assert all(outcome.succeeded for outcome in wait_all([first, second]))
    [entry] = step_run(first, "charge").coordination
    assert (entry["primitive"], entry["key"], entry["state"]) == ("lock", "k", "released")


def test_seen_06_a_reactors_release_has_no_step_after_a_park_either(
    shared_worker: LiveWorker, recorder: Recorder
) -> None:
    with testing.hold("inner") as held:
        handle = Guarded.enqueue(outer_key="outer", key="inner")
        wait_parked(handle)
        held.release()
        outcome = handle.wait(PATIENCE)
    until(lambda: events(outcome, "released", key="outer"), "the last release was told, behind the end")
    assert [event.step for event in events(outcome, "acquired", "adopted", "released", key="outer")] == ["", "", ""]
    assert {event.step for event in events(outcome, "acquired", "released", key="inner")} == {"charge"}


def test_b010_giving_up_is_never_a_success(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k"):
        waited, failed, skipped = wait_all([each.enqueue(key="k") for each in (WaitThenFail, FailFast, SkipBusy)])
    for outcome in (waited, failed):
        assert outcome.failed
        testing.assert_contended(outcome, "charge", key="k")
        assert outcome.failure is not None
        assert (outcome.failure.step, outcome.failure.error_type) == ("charge", "LockContended")
        assert "'k'" in outcome.failure.message
        assert "parked" not in kinds(outcome)
    assert skipped.succeeded
    run = step_run(skipped, "charge")
    assert (run.status, run.attempts) == ("skipped", 0)
    assert "k" in run.reason
    assert recorder.count("run charge") == 0
    assert recorder.count("run notify") == 1


@pytest.mark.parametrize("how", ["success", "failure", "exception", "skip", "halt"])
def test_b039_every_end_of_a_body_wakes_the_next(shared_worker: LiveWorker, recorder: Recorder, how: str) -> None:
    holder = Ending.enqueue(key="k", how=how)
    recorder.wait_for("run ending")
    waiting = Single.enqueue(key="k")
    assert waiting.wait(PATIENCE).succeeded
    assert events(waiting, "parked")
    holder.wait(PATIENCE)
    assert recorder.intervals("run charge")[0].entered - recorder.intervals("run ending")[0].left < LATE


def test_b039_a_cancelled_holder_wakes_the_next(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("inner"):
        holder = Gated.enqueue(key="k", inner_key="inner")
        wait_parked(holder)
        waiting = Single.enqueue(key="k")
        wait_parked(waiting)
        recorder.mark("cancelled")
        holder.cancel()
        assert waiting.wait(PATIENCE).succeeded
        assert holder.wait(PATIENCE).status == "cancelled"
    [cancelled] = recorder.wait_for("cancelled")
    assert recorder.intervals("run charge")[0].entered - cancelled.entered < LATE
    assert recorder.sequence() == ["run before", "cancelled", "undo before", "run charge"]


def test_b039_an_operators_release_wakes_the_next(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        waiting = Single.enqueue(key="k")
        wait_parked(waiting)
        recorder.mark("released")
        assert operations.release_key("k", fence=held.fence, reason="stuck", actor="me")
        assert waiting.wait(PATIENCE).succeeded
    [released] = recorder.wait_for("released")
    assert recorder.intervals("run charge")[0].entered - released.entered < LATE


def test_b168_inside_a_transaction_it_starts_after_the_commit(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with transaction.atomic():
        handle = Single.enqueue(name="kept", key="k")
        with pytest.raises(BodyFailed), transaction.atomic():
            Single.enqueue(name="rolled back", key="k")
            raise BodyFailed
        time.sleep(0.5)
        recorder.mark("about to commit")
    assert handle.wait(PATIENCE).succeeded
    assert recorder.sequence() == ["about to commit", "run charge"]
    assert recorder.intervals("run charge")[0].notes["name"] == "kept"


def test_b095_a_message_before_its_row_is_committed(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with transaction.atomic():
        handle = Single.enqueue(key="k")
        send(str(handle.id))
        time.sleep(0.3)
    assert handle.wait(PATIENCE).succeeded
    assert recorder.sequence() == ["run charge"]


def test_b095_a_message_for_nothing_is_dropped_with_a_warning(shared_worker: LiveWorker, recorder: Recorder) -> None:
    nobody = uuid7()
    deleted = Single.enqueue(key="k")
    deleted.wait(PATIENCE)
    deleted.execution.delete()
    for each in (nobody, deleted.id, "not even an id"):
        send(str(each))
    for each in (nobody, deleted.id, "not even an id"):
        shared_worker.wait_for_log(rf"WARNING.*event=reactor_coord\.message_for_nothing execution=.*{each}")
    assert Single.enqueue(key="k").wait(PATIENCE).succeeded  # it goes on


@pytest.mark.parametrize("how", ["unprintable", "chained", "base"])
def test_b109_the_failure_shows_the_original_error(shared_worker: LiveWorker, recorder: Recorder, how: str) -> None:
    outcome = Odd.enqueue(how=how).wait(PATIENCE)
    assert outcome.failed
    assert outcome.failure is not None
    named = {"unprintable": "OddError", "chained": "BodyFailed", "base": "GroundError"}
    assert (outcome.failure.step, outcome.failure.reactor) == ("odd", "Odd")
    assert outcome.failure.error_type == named[how]
    words = {"unprintable": "OddError", "chained": "the original message", "base": "beneath Exception"}
    assert words[how] in outcome.failure.message
    assert recorder.sequence() == ["run before", "run odd", "comp odd", "undo before"]


def test_b098_waiting_is_never_taken_for_dead(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k"):
        parked, backing_off = Single.enqueue(key="k"), SlowRetry.enqueue(fail_at="charge", fails=1)
        wait_parked(parked)
        assert backing_off.wait(PATIENCE).succeeded  # two seconds: four sweeps, while a park has no lease to run out
        assert parked.status == "parked"
        assert (step_run(parked, "charge").attempts, step_run(backing_off, "charge").attempts) == (0, 2)
    assert parked.wait(PATIENCE).succeeded
    for each in (parked, backing_off):
        assert each.execution.workers_lost == 0
        assert not events(each, "worker_lost", "failed", "aborted")
