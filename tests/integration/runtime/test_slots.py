"""Slots of a semaphore whose executions end by another's hand, and lines whose waiters are cancelled."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord import Input, step, testing, with_lock, with_semaphore
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import eventually, forked, kill
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_semaphore("{key}", limit=2, ttl=1)
class Admitted(Named):
    """Two at a time, as a whole; its step waits for a lock."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    @step(key=key)
    @with_lock("{key}:inner", ttl=5)
    def inner(key: str) -> None:
        """Nothing."""

    slow = step(Work, after=inner)


@with_semaphore("{key}", limit=2, ttl=5)
class SlottedWork(Work):
    key = Input(str)


class Slotted(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(SlottedWork)


def slots(key: str = "k") -> int:
    return len(inspect.look(key, primitive="semaphore").holds)


def waiting(key: str = "k") -> list[str]:
    return [waiter.owner for waiter in inspect.line(key, primitive="semaphore")]


def test_b057_marked_as_lost_by_the_sweep_a_dead_process_holds_no_slot(
    reactor_settings: Any, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor_settings(LEASE_TTL=1)
    with forked(lambda: Admitted.run(key="k", seconds=60)) as pid:
        recorder.wait_for("run slow")
        kill(pid)
        (dead,) = Execution.objects.all()
        eventually(lambda: sweep_once().aborted, within=5)
        dead.refresh_from_db()
        assert dead.status == "aborted"
        eventually(lambda: slots() == 0, within=2)
    with testing.hold("k", "semaphore", limit=2):
        assert Admitted.run(key="k").succeeded


def test_b057_cancelled_by_an_operator_what_it_kept_parked_is_free_at_once(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k:inner"):
        handles = [Admitted.enqueue(key="k") for _ in range(3)]
        for handle in handles:
            deliver(str(handle.id), "test")
        assert slots() == 2
        assert waiting() == [str(handles[2].id)]
        begun = time.monotonic()
        handles[0].cancel()
        handles[1].cancel()
        deliver(str(handles[0].id), "test")
        deliver(str(handles[1].id), "test")
        assert time.monotonic() - begun < 1
        assert [handle.status for handle in handles[:2]] == ["cancelled"] * 2
        assert slots() == 1  # granted to the third
    testing.drain(timeout=5)
    assert handles[2].status == "completed"
    assert slots() == 0


@pytest.mark.parametrize("which", [0, 1, 2])
def test_b082_a_cancelled_waiter_for_a_slot_holds_nobody_up(
    which: int, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k", "semaphore", limit=2) as one, testing.hold("k", "semaphore", limit=2) as two:
        handles = [Slotted.enqueue(name=str(number), key="k") for number in range(3)]
        for handle in handles:
            deliver(str(handle.id), "test")
        assert waiting() == [str(handle.id) for handle in handles]
        handles[which].cancel()
        left = [handle for number, handle in enumerate(handles) if number != which]
        assert waiting() == [str(handle.id) for handle in left]
        one.release()
        two.release()
    testing.drain()
    assert [handle.status for handle in left] == ["completed"] * 2
    assert handles[which].status == "cancelled"
    assert recorder.count("run charge") == 2
    assert slots() == 0
