"""Messages that meet a running execution: answered by looking again in place, so that copies of a message breed no others."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from reactor_coord import probes, testing
from reactor_coord.conf import settings
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.runtime.runner import LOOKS_IN_PLACE
from reactor_coord.storage import clock
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import Has, trace
from tests.integration.runtime.test_interrupt import Reviewed
from tests.live.reactors import Guarded, Single, SlowRetry

pytestmark = pytest.mark.django_db(transaction=True)

At = Callable[[str, Callable[[int], None]], None]

PARKING = "park.before_commit"


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """`at(point, act)`: from now on call `act` with the number of the time, from 1, at which the point is reached."""
    acts: dict[str, Callable[[int], None]] = {}
    times: Counter[str] = Counter()

    def listen(point: str) -> None:
        if point in acts:
            times[point] += 1
            acts[point](times[point])

    def install(point: str, act: Callable[[int], None]) -> None:
        acts[point] = act
        times[point] = 0

    monkeypatch.setattr(probes, "listener", listen)
    return install


@pytest.fixture(autouse=True)
def _wide_net(reactor_settings: Callable[..., None], reactor_dispatches: Dispatches) -> None:
    """Nothing is due by itself: who goes on was woken. Messages are kept for the test to deliver."""
    reactor_settings(SNOOZE_BASE_DELAY=60, SNOOZE_MAX_DELAY=60, SWEEP_INTERVAL=5)


def come(of: Has, copies: int) -> None:
    """So many copies of its message arrive."""
    for _ in range(copies):
        deliver(str(of.execution.id), "another worker")


def parks(of: Has) -> int:
    return len(trace(of, "parked"))


def waited_on(of: Has) -> dict[str, Any]:
    waiting_on = of.execution.waiting_on
    assert isinstance(waiting_on, dict)
    return waiting_on


def test_u85_a_copy_that_comes_while_it_parks_is_answered_by_one_look_and_no_message(
    at: At, reactor_dispatches: Dispatches
) -> None:
    with testing.hold("k"):
        handle = Single.enqueue(key="k")
        reactor_dispatches.clear()
        at(PARKING, lambda time: come(handle, 2) if time == 1 else None)
        come(handle, 1)
        assert (parks(handle), reactor_dispatches) == (2, [])
        assert not handle.execution.wake_requested


def test_u85_copies_that_come_at_every_park_are_left_to_the_sweep(at: At, reactor_dispatches: Dispatches) -> None:
    with testing.hold("k"):
        handle = Single.enqueue(key="k")
        reactor_dispatches.clear()
        at(PARKING, lambda _: come(handle, 2))
        come(handle, 1)
        assert (parks(handle), reactor_dispatches) == (1 + LOOKS_IN_PLACE, [])
        soon = clock.present() + timedelta(seconds=settings().SWEEP_INTERVAL)
        assert handle.execution.resume_at is not None
        assert handle.execution.resume_at <= soon
        assert waited_on(handle)["stuck"] == 1  # what others' messages brought about counts for no ceiling


@pytest.mark.parametrize("gap", ["refused.after", PARKING])
@pytest.mark.parametrize("look", range(1, 2 + LOOKS_IN_PLACE))
def test_u85_a_release_between_refusal_and_park_is_not_lost_at_any_look(
    at: At, reactor_dispatches: Dispatches, recorder: Recorder, look: int, gap: str
) -> None:
    """Copies come at every park before it, so that the wake is one of many."""
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        reactor_dispatches.clear()

        def release(time: int) -> None:
            if time == look:
                held.release()
                assert reactor_dispatches.ids == [str(handle.id)]
                come(handle, 1)

        if gap == PARKING:
            at(PARKING, lambda time: come(handle, 2) if time != look else release(time))
        else:
            at(PARKING, lambda time: come(handle, 2) if time < look else None)
            at(gap, release)
        come(handle, 1)
        reactor_dispatches.clear()
        if handle.status == "parked":
            assert sweep_once().sent == 1
            assert reactor_dispatches.ids == [str(handle.id)]
            come(handle, 1)
    assert handle.status == "completed"
    assert recorder.sequence() == ["run charge"]


def test_u85_copies_that_come_at_every_pause_breed_no_message(at: At, reactor_dispatches: Dispatches) -> None:
    handle = Reviewed.enqueue(name="x", key="copies")
    reactor_dispatches.clear()
    at(PARKING, lambda _: come(handle, 2))
    come(handle, 1)
    assert reactor_dispatches == []
    at(PARKING, lambda _: None)
    testing.drain()
    assert handle.status == "paused"
    Reviewed.resume("order-copies", step="review", payload={"approved": True, "note": ""})
    testing.drain()
    assert handle.wait(timeout=1).value is True


def test_u85_copies_that_come_too_early_breed_no_message(at: At, reactor_dispatches: Dispatches) -> None:
    handle = SlowRetry.enqueue(fail_at="charge", fails=1)
    come(handle, 1)
    until = waited_on(handle)["until"]
    reactor_dispatches.clear()
    at("claim.after", lambda _: come(handle, 4))
    come(handle, 5)
    assert (handle.status, waited_on(handle)["until"], reactor_dispatches) == ("parked", until, [])
    at("claim.after", lambda _: None)
    testing.drain(timeout=5)
    assert handle.status == "completed"


class Broker:
    """Delivers each message so many times, and copies of it, where there are any, while the execution parks."""

    def __init__(self, dispatches: Dispatches, copies: int, most: int) -> None:
        self.dispatches, self.copies, self.most = dispatches, copies, most
        self.queue: deque[str] = deque()
        self.sent: Counter[str] = Counter()
        self.delivering: list[str] = []

    def run(self) -> None:
        """Until nothing is left."""
        self._fetch()
        while self.queue:
            self._deliver(self.queue.popleft())
            self._fetch()

    def parking(self, _: int) -> None:
        """Two copies of the message that is being handled come now."""
        handled = self.delivering[-1]
        for _ in range(2):
            if handled in self.queue:
                self.queue.remove(handled)
                self._deliver(handled)

    def _deliver(self, execution_id: str) -> None:
        self.delivering.append(execution_id)
        deliver(execution_id, "worker")
        self.delivering.pop()

    def _fetch(self) -> None:
        for message in self.dispatches.take():
            self.sent[message.execution_id] += 1
            self.queue.extend([message.execution_id] * self.copies)
        assert max(self.sent.values(), default=0) <= self.most, f"messages multiply: {self.sent}"


@pytest.mark.parametrize("copies", [3, 10])
def test_u85_duplicates_never_multiply(at: At, reactor_dispatches: Dispatches, recorder: Recorder, copies: int) -> None:
    """A start and a wake each, whatever a broker makes of them; no more looks than deliveries."""
    broker = Broker(reactor_dispatches, copies, most=3)
    at(PARKING, broker.parking)
    with testing.hold("k") as held:
        handles: list[Any] = [Single.enqueue(name=f"{number}", key="k") for number in range(6)]
        handles += [Guarded.enqueue(name=f"{number}", outer_key="o", key="k") for number in range(6, 9)]
        broker.run()
        assert all(handle.status == "parked" for handle in handles)
        assert broker.sent == {str(handle.id): 1 for handle in handles}
        held.release()
        broker.run()
    assert Execution.objects.filter(status="completed").count() == len(handles)
    bodies = Counter(body.notes["name"] for body in recorder.intervals("run charge"))
    assert bodies == {f"{number}": 1 for number in range(9)}
    for handle in handles:
        assert parks(handle) <= copies * broker.sent[str(handle.id)]
