"""Rate limits by an execution's life: what its parks, retries, cancellation and looks cost, and whom it owes its slot."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from reactor_coord import Input, Retry, step, testing, with_lock, with_rate_limit
from reactor_coord.coordination import rate_limits
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import row, runs, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

AGES = 315_360_000
"""A window that no test sees the end of."""


@with_rate_limit("{key}:calls", limit=1, period=AGES)
class OnceInAges(Work):
    key = Input(str)


@with_rate_limit("{key}:calls", limit=5, period=AGES)
@with_lock("{key}", ttl=5)
class LimitedAndLocked(Work):
    key = Input(str)


@with_rate_limit("{key}:calls", limit=1, period=0.25)
class Paced(Work):
    key = Input(str)
    retry = Retry(max_attempts=2, base_delay=0.01)


@with_rate_limit("{key}:calls", limit=1, period=AGES, algorithm="sliding_window")
class SlidingReactor(Named):
    key = Input(str)
    call = step(Work)


class Calling(Named):
    key = Input(str)
    before = step(Work)
    call = step(OnceInAges, after=before)


class Working(Named):
    key = Input(str)
    call = step(LimitedAndLocked)


class Pacing(Named):
    key = Input(str)
    call = step(Paced)


def charged(key: str = "k") -> int:
    return sum(count for _, count in rate_limits().view(f"{key}:calls").windows)


def planned(key: str = "k") -> list[str]:
    return [who.partition("|")[0] for who, _ in rate_limits().view(f"{key}:calls").planned]


def test_b064_d79_parks_and_redeliveries_spend_no_start(reactor_dispatches: Any, recorder: Recorder) -> None:
    with testing.hold("k"):
        handle = Working.enqueue(key="k")
        for _ in range(10):
            deliver(str(handle.id), "test")
            assert handle.status == "parked"
        assert charged() == 0
    testing.drain()
    assert handle.status == "completed"
    assert charged() == recorder.count("run call") == 1


def test_b065_waiting_for_a_slot_uses_up_no_retry(reactor_dispatches: Any, recorder: Recorder) -> None:
    handles = [Pacing.enqueue(name=str(number), key="k") for number in range(6)]
    testing.drain(timeout=15)
    assert [handle.status for handle in handles] == ["completed"] * 6
    assert {runs(handle)["call"].attempts for handle in handles} == {1}
    bodies = recorder.intervals("run call")
    assert [body.notes["name"] for body in bodies] == [str(number) for number in range(6)]
    assert len({int(body.entered / 0.25) for body in bodies}) >= 5  # a body begins a moment after its charge
    assert all(len(told(handle, "parked")) <= 1 for handle in handles), "each has a slot of its own"


@pytest.mark.parametrize("reactor", [Calling, SlidingReactor])
def test_a_cancelled_waiter_gives_its_slot_back_and_who_comes_next_has_it(
    reactor: Any, reactor_dispatches: Any, recorder: Recorder
) -> None:
    first, second = reactor.enqueue(key="k"), reactor.enqueue(key="k")
    testing.drain()
    assert [first.status, second.status] == ["completed", "parked"]
    assert planned() == [str(second.id)]
    slot = (row(second).waiting_on or {})["slot"]
    second.cancel()
    assert planned() == []
    testing.drain()
    assert second.status == "cancelled"
    third = reactor.enqueue(key="k")
    testing.drain()
    assert planned() == [str(third.id)]
    assert abs(_seconds((row(third).waiting_on or {})["slot"]) - _seconds(slot)) < 1
    fourth = reactor.enqueue(key="k")
    testing.drain()
    assert planned() == [str(third.id), str(fourth.id)]
    third.cancel()
    assert planned() == [str(fourth.id)]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_a_stray_message_before_its_slot_moves_nothing(reactor_dispatches: Any, recorder: Recorder) -> None:
    first, second = Calling.enqueue(key="k"), Calling.enqueue(key="k")
    testing.drain()
    until = (row(second).waiting_on or {})["until"]
    for _ in range(3):
        deliver(str(second.id), "test")
    assert second.status == "parked"
    assert (row(second).waiting_on or {})["until"] == until
    assert first.status == "completed"
    assert len(told(second, "parked")) == 1
