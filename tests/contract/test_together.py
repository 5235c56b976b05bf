"""Several operations in one round trip: in order, to the first refusal, and nothing left behind by a reply that was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reactor_coord.coordination import (
    Ask,
    Locks,
    NotYet,
    OrderedLines,
    RateLimits,
    Refused,
    Semaphores,
    Taken,
    Turn,
    Window,
    set_waker,
)
from reactor_coord.coordination.asking import together
from reactor_coord.coordination.inspect import look
from reactor_coord.coordination.period import SKEW, Periods, _buckets, bucket_at
from reactor_coord.errors import CoordinationUnavailable
from reactor_coord.testing.proxy import Proxy
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, refused, taken, who

WINDOWS = [Window(1, 3600)]


class Family:
    """All five over one connection, and what one step under all of them asks."""

    def __init__(self, locks: Locks) -> None:
        self.locks, self.connection = locks, locks.connection
        self.semaphores = Semaphores(locks.connection, locks.names, keeper=locks.keeper)
        self.limits = RateLimits(locks.connection, locks.names, grace=2)
        self.periods = Periods(locks.connection, locks.names)
        self.lines = OrderedLines(locks.connection, locks.names, locks.keeper)

    def asks(self, owner: str = "A", *, token: str = "t", ttl: float = 30, strict: bool = False) -> list[Ask[Any]]:
        me = who(owner)
        look = self.periods.looking("k", "day", "UTC")
        assert look is not None
        return [
            self.lines.entering("k", owner, me, poison_timeout=60, ttl=600, strict=strict),
            look,
            self.limits.looking("k", owner, token, WINDOWS, "fixed_window", plans=False),
            self.locks.taking(["k"], me, ttl=ttl),
            self.semaphores.taking("k", me, limit=1, ttl=ttl),
            look,
            self.limits.charging("k", owner, token, WINDOWS, "fixed_window", plans=False),
        ]

    def take(self, owner: str = "A", *, token: str = "t", ttl: float = 30, strict: bool = False) -> list[Any] | None:
        return together(self.connection, self.asks(owner, token=token, ttl=ttl, strict=strict), until_refused=True)

    def give(self, answers: list[Any], *, failed: bool = False) -> list[tuple[str, ...]]:
        turn, looked, _, lock, slot, *_ = answers
        assert isinstance(turn, Turn) and isinstance(lock, Taken) and isinstance(slot, Taken)
        assert isinstance(looked, tuple)
        asks = [
            self.semaphores.giving(slot),
            self.locks.giving(lock),
            self.lines.completing(turn.taken, "failed" if failed else "succeeded"),
        ]
        given = together(self.connection, asks, until_refused=False)
        assert given is not None
        return given

    def is_free(self) -> bool:
        locks, semaphores = look("k", self.locks), self.semaphores.take("k", who("probe"), limit=1, ttl=9, join=False)
        if isinstance(semaphores, Taken):
            self.semaphores.give(semaphores)
        return locks.hold is None and isinstance(semaphores, Taken)


@pytest.fixture
def family(locks: Locks) -> Family:
    return Family(locks)


def test_all_pass_and_all_is_given_back(family: Family) -> None:
    answers = family.take()
    assert answers is not None and len(answers) == 7
    assert not family.is_free()
    assert family.limits.view("k").windows[0][1] == 1
    assert family.give(answers) == [(), (), ()]
    assert family.is_free()
    assert family.lines.view("k").is_drained


@pytest.mark.parametrize("busy", range(5))
def test_it_stops_at_the_first_refusal_and_asks_nothing_behind_it(family: Family, busy: int) -> None:
    """In the way: one ahead in line, a mark, a used limit, the lock, the slot."""
    obstacles: list[Callable[[], Any]] = [
        lambda: family.lines.enter("k", "B", who("B"), poison_timeout=60, ttl=600),
        lambda: family.periods.mark("k", bucket_at(datetime.now(tz=UTC), "day", "UTC"), "B"),
        lambda: family.limits.charge("k", "B", "b", WINDOWS, "fixed_window", plans=False),
        lambda: family.locks.take(["k"], who("B"), ttl=30),
        lambda: family.semaphores.take("k", who("B"), limit=1, ttl=30),
    ]
    obstacles[busy]()
    answers = family.take()
    assert answers is not None and len(answers) == busy + 1
    if busy == 0:
        assert isinstance(answers[0], NotYet) and answers[0].ahead == 1
    if busy == 1:
        bucket, mark = answers[1]
        assert mark.by == "B" and mark.bucket == bucket.name
    if busy in {3, 4}:
        assert isinstance(answers[busy], Refused)
    assert isinstance(family.locks.take(["k"], who("A"), ttl=30, join=False), Taken) == (busy != 3)
    charged = family.limits.view("k").windows
    assert [count for _, count in charged] == ([1] if busy == 2 else [])


def test_refused_it_stands_in_line_and_is_handed_the_key_by_the_give(family: Family) -> None:
    held = family.take("A")
    assert held is not None
    lone = together(
        family.connection,
        [
            family.limits.looking("other", "B", "b", WINDOWS, "fixed_window", plans=False),
            family.locks.taking(["k"], who("B"), ttl=30),
        ],
        until_refused=True,
    )
    assert lone is not None and refused(lone[1]).place == 1
    assert family.give(held) == [(), ("B",), ()]
    assert taken(family.locks.take(["k"], who("B"), ttl=30)).keys[0].how == "granted"


def test_behind_a_failed_position_of_a_strict_line_nothing_is_taken(family: Family) -> None:
    first = family.lines.enter("k", "A", who("A"), poison_timeout=60, ttl=600)
    family.lines.enter("k", "B", who("B"), poison_timeout=60, ttl=600)
    assert isinstance(first, Turn)
    family.lines.complete(first.taken, failed=True)
    answers = family.take("B", strict=True)
    assert answers is not None and len(answers) == 1
    assert isinstance(answers[0], Turn) and answers[0].failed == 1
    assert family.is_free()
    assert len(family.take("B") or ()) == 7


def test_a_reply_that_was_lost_is_had_again_and_counts_once(
    make_locks: MakeLocks, family: Family, proxy: Proxy
) -> None:
    behind = Family(make_locks(proxy.url))
    assert behind.is_free()
    proxy.swallow_replies(match=b"EVALSHA")
    answers = behind.take()
    assert answers is not None and len(answers) == 7
    assert proxy.swallowed == 1
    assert family.limits.view("k").windows[0][1] == 1
    behind.give(answers)
    assert family.is_free()


def test_b007_what_an_unanswered_one_may_have_given_is_given_back(
    make_locks: MakeLocks, family: Family, proxy: Proxy
) -> None:
    behind = Family(make_locks(proxy.url))
    assert behind.is_free()
    proxy.swallow_replies(2, match=b"EVALSHA")
    with pytest.raises(CoordinationUnavailable) as raised:
        behind.take()
    assert raised.value.details["primitive"] == "ordered_lock"
    eventually(family.is_free, within=5)


def test_interrupted_while_it_wakes_others_what_it_was_given_is_given_back(family: Family) -> None:
    """A raised limit lets others in with the one who came: their wakes are sent before the answer is had."""
    first = taken(family.semaphores.take("k", who("A"), limit=1, ttl=30))
    for owner in ("B", "C"):
        refused(family.semaphores.take("k", who(owner), limit=1, ttl=30))

    def interrupt(names: Iterable[str]) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    asks = [
        family.locks.taking(["k"], who("D"), ttl=30),
        family.semaphores.taking("k", who("D"), limit=3, ttl=30),
    ]
    set_waker(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            together(family.connection, asks, until_refused=True)
    finally:
        set_waker(None)
    eventually(lambda: look("k", family.locks).hold is None, within=3)
    family.semaphores.give(first)


def test_b006_a_reply_later_than_a_lease_allows_is_no_hold(make_locks: MakeLocks, family: Family, proxy: Proxy) -> None:
    behind = Family(make_locks(proxy.url))
    assert behind.is_free()
    proxy.delay_down = 0.3
    assert behind.take(ttl=0.4) is None
    proxy.delay_down = 0
    eventually(family.is_free, within=3)


def test_it_is_sent_again_with_its_text_when_the_server_forgot_it(family: Family) -> None:
    family.connection.client.script_flush()
    answers = family.take()
    assert answers is not None and len(answers) == 7
    family.connection.client.script_flush()
    family.give(answers)
    assert family.is_free()


def test_b063_a_clock_too_far_off_decides_nothing(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[], float] = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10)
    answers = family.take()
    assert answers is not None and len(answers) == 2
    assert answers[1] is None
    assert family.is_free()


@pytest.mark.parametrize("every", [1, 7.5, "minute", "hour", "day", "week", "month", "year"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_the_buckets_around_now_are_told_beforehand_and_exactly(every: str | float, zone: str) -> None:
    """Around the end of a year, and where clocks change."""
    for middle in ("2026-12-31T23:00Z", "2026-03-29T01:00Z", "2026-10-25T01:00Z"):
        for minutes in (0, 30, 60):
            now = datetime.fromisoformat(middle) + timedelta(minutes=minutes)
            buckets = _buckets(now - SKEW, now + SKEW, every, zone)
            assert buckets is not None
            for late in range(-20, 21):
                instant = now + late * SKEW / 20.5
                found = next(bucket for bucket in buckets if instant < bucket.ends_at)
                assert found == bucket_at(instant, every, zone)


def test_an_hour_that_changes_its_name_on_the_way_is_not_told_beforehand() -> None:
    """Newfoundland changed its clocks at a minute past midnight."""
    change = datetime(2010, 3, 14, 3, 31, tzinfo=UTC)
    for minutes, is_sure in ((-60, True), (-1, False), (1, True), (60, True)):
        at = change + timedelta(minutes=minutes)
        assert (_buckets(at, at, "hour", "America/St_Johns") is not None) == is_sure
