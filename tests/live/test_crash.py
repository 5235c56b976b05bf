"""Processes killed at every place that matters; one worker, whose children die. Leases and holds last a second here."""

from __future__ import annotations

import pytest

from reactor_coord import testing
from reactor_coord.coordination import ordered_lines, rate_limits
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live import remote
from tests.live.reactors import Brief, BriefPayment, Chain, FamilyPayment, Four, GuardedChain, Odd, Single
from tests.live.support import events, step_run, until, wait_parked
from tests.support.patience import LATE, PATIENCE, patience

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE_FAULTS = True
LEASE_TTL = 1.0
SWEEP_INTERVAL = 0.3
WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 1,
    "SNOOZE_MAX_DELAY": 1,
    "SNOOZE_JITTER": 0,
    "SWEEP_INTERVAL": SWEEP_INTERVAL,
    "LEASE_TTL": LEASE_TTL,
    "HANDOFF_GRACE": 1,
}
STEPS = [f"run c{number}" for number in range(1, 7)]
UNDOS = [f"undo c{number}" for number in range(5, 0, -1)]


@pytest.fixture(autouse=True)
def _all_children(shared_worker: LiveWorker) -> None:
    """The pool takes up to some seconds to replace a child that was killed."""
    until(lambda: len(shared_worker.children()) == shared_worker.concurrency, "a full pool", 15)


def test_seq_10_killed_inside_a_body_it_goes_on_with_that_body(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handle = Chain.enqueue(seconds=0.2)
    [body] = recorder.wait_for("run c2")
    shared_worker.kill_child(body.pid)
    recorder.gone(body.pid)
    recorder.wait_for("run c2", 2)
    outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    assert recorder.sequence() == [STEPS[0], STEPS[1], *STEPS[1:]]
    run = step_run(outcome, "c2")
    assert (run.attempts, run.workers_lost) == (2, 1)
    killed, repeated = recorder.intervals("run c2")
    assert repeated.entered - killed.left < LEASE_TTL + SWEEP_INTERVAL + LATE


def test_park_11_a_killed_holder_keeps_the_key_no_longer_than_its_ttl(
    shared_worker: LiveWorker, recorder: Recorder
) -> None:
    holder = Brief.enqueue(name="holder", key="k", seconds=2)
    [body] = recorder.wait_for("run charge")
    waiting = Brief.enqueue(name="waiting", key="k")
    wait_parked(waiting)
    shared_worker.kill_child(body.pid)
    recorder.gone(body.pid)
    assert waiting.wait(PATIENCE).succeeded
    killed, second = recorder.wait_for("run charge", 2)[:2]
    assert second.notes["name"] == "waiting"
    assert second.entered - killed.left < 1 + SWEEP_INTERVAL + LATE
    assert holder.wait(PATIENCE).succeeded
    assert recorder.max_concurrency("run charge") == 1


@pytest.mark.parametrize(
    "point, skip, again",
    [
        ("body.after", 1, True),  # before its result is written
        ("checkpoint.before", 1, True),
        ("checkpoint.after", 1, False),  # written, not yet released
        ("release.before", 0, False),
        ("release.after", 0, False),  # released, the next step not yet begun
    ],
)
def test_b101_a_body_runs_again_only_when_its_result_was_not_written(
    shared_worker: LiveWorker, recorder: Recorder, point: str, skip: int, again: bool
) -> None:
    remote.arm(point, "kill", skip=skip)
    outcome = BriefPayment.enqueue(key="k").wait(patience(15))
    assert outcome.succeeded
    assert not remote.is_pending(point)
    charges = ["run charge"] * (2 if again else 1)
    assert recorder.sequence() == ["run audit", *charges, "run notify"]
    if point == "release.before":
        return
    testing.assert_free("k")


@pytest.mark.parametrize(
    "point, skip, bodies, starts",
    [
        ("step.after_take", 0, 1, 2),  # everything taken, the lock told, no body yet
        ("body.after", 1, 2, 2),
        ("release.before", 0, 1, 1),  # written, nothing given back
        ("release.after", 0, 1, 1),
    ],
)
def test_b101_killed_around_a_body_under_all_five_nothing_stays_held(
    shared_worker: LiveWorker, recorder: Recorder, point: str, skip: int, bodies: int, starts: int
) -> None:
    key = f"five {point}"  # the worker's keys outlive a test, and a mark its bucket
    remote.arm(point, "kill", skip=skip)
    outcome = FamilyPayment.enqueue(key=key).wait(patience(20))
    assert outcome.succeeded
    assert not remote.is_pending(point)
    assert recorder.sequence() == ["run audit", *(["run charge"] * bodies), "run notify"]
    assert sum(count for _, count in rate_limits().view(f"{key}:rate").windows) == starts
    after = FamilyPayment.enqueue(key=key).wait(patience(20))  # behind it in the line, and free to take what it had
    assert after.succeeded
    charge = step_run(after, "charge")
    is_marked = point != "release.before"
    assert (charge.status, charge.reason) == (("skipped", "period") if is_marked else ("succeeded", ""))
    testing.assert_free(key)
    until(lambda: ordered_lines().view(f"{key}:line").is_drained, "nobody left in the line")


@pytest.mark.parametrize("done", [1, 3, 5])
def test_b103_killed_between_two_steps_it_goes_on_with_the_next(
    shared_worker: LiveWorker, recorder: Recorder, done: int
) -> None:
    """The reactor's own lock is held meanwhile, in the name of a dead claim: it is waited out, then taken anew."""
    remote.arm("checkpoint.after", "kill", skip=done - 1)
    outcome = GuardedChain.enqueue(outer_key="o").wait(patience(15))
    assert outcome.succeeded
    assert not remote.is_pending("checkpoint.after")
    assert recorder.sequence() == STEPS[:5]
    for number in range(1, 6):
        assert step_run(outcome, f"c{number}").attempts == 1 + (number == done + 1)
    testing.assert_free("o")


@pytest.mark.parametrize(
    "point, twice",
    [("rollback.before_undo", False), ("rollback.after_undo_body", True), ("rollback.after_undo", False)],
)
def test_rollback_10_killed_in_a_rollback_of_five(
    shared_worker: LiveWorker, recorder: Recorder, point: str, twice: bool
) -> None:
    """Killed between undos each runs once; killed inside one, that one twice. The first arrival is the compensation's."""
    remote.arm(point, "kill", skip=2)
    outcome = Chain.enqueue(fail_at="c6").wait(patience(15))
    assert outcome.failed
    assert not remote.is_pending(point)
    assert outcome.failure is not None
    assert outcome.failure.rollback_failures == ()
    killed_in = ["undo c4"] if twice else []
    assert recorder.sequence() == [*STEPS, "comp c6", "undo c5", *killed_in, "undo c4", "undo c3", "undo c2", "undo c1"]
    assert outcome.failure.message == "c6 was told to fail"


def test_seq_15_killed_inside_the_second_of_four_undos(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handle = Four.enqueue(fail_at="f5", undo_seconds=0.2)
    [undo] = recorder.wait_for("undo f3")
    shared_worker.kill_child(undo.pid)
    recorder.gone(undo.pid)
    outcome = handle.wait(patience(15))
    assert outcome.failure is not None
    assert outcome.failure.rollback_failures == ()
    undone = [label for label in recorder.sequence() if label.startswith("undo")]
    assert undone == ["undo f4", "undo f3", "undo f3", "undo f2", "undo f1"]


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_b112_a_step_that_kills_its_worker_stops_after_its_attempts(
    shared_worker: LiveWorker, recorder: Recorder, how: str
) -> None:
    handle = Odd.enqueue(how=how)
    others = [Single.enqueue(name=f"{number}", key=f"{number}") for number in range(10)]
    outcome = handle.wait(patience(20))
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("odd", "WorkerLost")
    own = [label for label in recorder.sequence() if label != "run charge"]
    assert own == ["run before", *["run odd"] * 3, "comp odd", "undo before"]
    assert all(other.wait(PATIENCE).succeeded for other in others)


def test_a_worker_killed_at_its_park_loses_nothing(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """After the park is written and before anything else: the release finds the execution in line all the same."""
    remote.arm("park.after_commit", "kill")
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        wait_parked(handle)
        until(lambda: not remote.is_pending("park.after_commit"), "the kill")
        held.release()
        assert handle.wait(PATIENCE).succeeded
    assert not events(handle, "worker_lost")


def test_killed_between_its_end_and_its_release(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """The end is written, the reactor's key still held: nobody comes back for it, and its ttl frees it."""
    remote.arm("finish.after", "kill")
    first = GuardedChain.enqueue(outer_key="o")
    assert first.wait(PATIENCE).succeeded
    second = GuardedChain.enqueue(outer_key="o")
    assert second.wait(PATIENCE).succeeded
