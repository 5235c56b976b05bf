"""What every primitive stands alike: odd keys, scripts that are flushed between any two calls, a server that evicts."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from reactor_coord.coordination import Locks, NotYet, OrderedLines, RateLimits, Semaphores, Turn, Window
from reactor_coord.coordination.period import Periods
from reactor_coord.testing.servers import ValkeyServer
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, refused, taken, who
from tests.contract.test_keys import ODD

ALGORITHMS = ["fixed_window", "sliding_window"]


@pytest.fixture
def semaphores(locks: Locks) -> Semaphores:
    return Semaphores(locks.connection, locks.names, keeper=locks.keeper)


@pytest.fixture
def limits(locks: Locks) -> RateLimits:
    return RateLimits(locks.connection, locks.names, grace=2)


@pytest.fixture
def lines(locks: Locks) -> OrderedLines:
    return OrderedLines(locks.connection, locks.names, locks.keeper)


@pytest.fixture
def flush(locks: Locks) -> Callable[[], None]:
    """Makes the server forget every script."""
    return lambda: locks.connection.client.script_flush()


# ---- odd keys


def test_b160_odd_keys_of_a_semaphore(semaphores: Semaphores) -> None:
    held = [taken(semaphores.take(key, who(f"owner {number}"), limit=1, ttl=10)) for number, key in enumerate(ODD)]
    for key in ODD:
        refused(semaphores.take(key, who("B"), limit=1, ttl=10, join=False))
    assert all(semaphores.renew(each) == frozenset() for each in held)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b160_odd_keys_of_a_rate_limit(limits: RateLimits, algorithm: str) -> None:
    windows = [Window(1, 3600)]
    for key in ODD:
        assert limits.charge(key, key, "t", windows, algorithm, plans=False) is None
    for key in ODD:
        assert limits.charge(key, "B", "u", windows, algorithm, plans=True) is not None
        assert [each for each, _ in limits.view(key).planned] == ["B"]


def test_b160_odd_keys_of_a_period(locks: Locks) -> None:
    periods = Periods(locks.connection, locks.names)
    for key in ODD:
        bucket, mark = periods.look(key, "day", "UTC")
        assert mark is None
        periods.mark(key, bucket, key)
    assert {key for key, _ in periods.survey()} == set(ODD)


def test_b160_odd_keys_of_an_ordered_line(lines: OrderedLines) -> None:
    for key in ODD:
        assert isinstance(lines.enter(key, key, who(key), poison_timeout=60, ttl=60), Turn)
        assert isinstance(lines.enter(key, "B", who("B"), poison_timeout=60, ttl=60), NotYet)
        assert len(lines.view(key).in_flight) == 2


# ---- scripts flushed


def test_b179_flushed_scripts_are_not_noticed_by_a_lock(locks: Locks, flush: Callable[[], None]) -> None:
    flush()
    held = taken(locks.take(["k"], who("A"), ttl=10))
    flush()
    assert refused(locks.take(["k"], who("B"), ttl=10)).place == 1
    flush()
    assert locks.renew(held) == frozenset()
    flush()
    assert locks.park(held, 10) == frozenset()
    flush()
    held = taken(locks.take(["k"], who("A", "2"), ttl=10))
    flush()
    assert locks.give(held) == ("B",)
    flush()
    assert locks.leave(["k"], who("B")) == ()
    flush()
    assert locks.tend() == ()


def test_b179_flushed_scripts_are_not_noticed_by_a_semaphore(semaphores: Semaphores, flush: Callable[[], None]) -> None:
    flush()
    held = taken(semaphores.take("k", who("A"), limit=1, ttl=10))
    flush()
    refused(semaphores.take("k", who("B"), limit=1, ttl=10))
    flush()
    assert semaphores.renew(held) == frozenset()
    flush()
    assert semaphores.park(held, 10) == frozenset()
    flush()
    assert semaphores.leave(["k"], who("A"), parked=True) == ("B",)
    flush()
    assert semaphores.tend() == ()
    flush()
    taken(semaphores.take("k", who("B"), limit=1, ttl=10))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b179_flushed_scripts_are_not_noticed_by_a_rate_limit(
    limits: RateLimits, flush: Callable[[], None], algorithm: str
) -> None:
    windows = [Window(1, 3600)]
    flush()
    assert limits.look("k", "A", windows, algorithm, plans=True) is None
    flush()
    assert limits.charge("k", "A", "t", windows, algorithm, plans=True) is None
    flush()
    assert limits.charge("k", "B", "u", windows, algorithm, plans=True) is not None
    flush()
    limits.cancel("k", "B")
    assert limits.view("k").planned == ()


def test_b179_flushed_scripts_are_not_noticed_by_an_ordered_line(
    lines: OrderedLines, flush: Callable[[], None]
) -> None:
    flush()
    first = lines.enter("k", "A", who("A"), poison_timeout=60, ttl=60)
    assert isinstance(first, Turn)
    flush()
    assert isinstance(lines.enter("k", "B", who("B"), poison_timeout=60, ttl=60), NotYet)
    flush()
    lines.pause(first.taken, 1)
    flush()
    assert lines.tend() == ()
    flush()
    again = lines.enter("k", "A", who("A"), poison_timeout=60, ttl=60)
    assert isinstance(again, Turn)
    flush()
    assert lines.complete(again.taken, failed=False) == ("B",)
    flush()
    assert lines.leave("k", "B", ttl=60) == ()


# ---- a server that evicts


def test_b181_an_evicted_hold_is_noticed_at_the_next_renewal(make_locks: MakeLocks) -> None:
    """Who enters meanwhile has a higher fence, and the old one learns that it is lost: within a third of the ttl."""
    with ValkeyServer("--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random") as server:
        locks = make_locks(server.url)
        held = [taken(locks.take([f"k{number}"], who(f"A{number}"), ttl=3)) for number in range(10)]
        lost: set[str] = set()
        for each in held:
            locks.watch(each, lost.add)
        client = locks.connection.client

        def fill() -> bool:
            for number in range(200):
                client.set(f"cache:{time.monotonic_ns()}:{number}", "x" * 4000)
            return bool(lost)

        eventually(fill, within=10)
        for each in held:
            if each.names[0] in lost:
                successor = taken(locks.take(each.names, who("B"), ttl=10))
                assert successor.keys[0].fence > each.keys[0].fence
                assert locks.renew(each) == frozenset(each.names)
                break


# ---- windows


@pytest.mark.parametrize(("algorithm", "most"), [("sliding_window", 4), ("fixed_window", 8)])
def test_b058_starts_in_any_window_as_documented(limits: RateLimits, algorithm: str, most: int) -> None:
    """A fixed window may have twice its limit over an edge, a sliding one never more than its limit."""
    starts: list[float] = []
    period = 0.4
    while time.time() % period < 0.75 * period:
        time.sleep(0.005)
    until = time.monotonic() + 4 * period
    while time.monotonic() < until:
        token = str(time.monotonic_ns())
        if limits.charge("k", token, token, [Window(4, period)], algorithm, plans=False) is None:
            starts.append(time.monotonic())
    worst = max(sum(1 for other in starts if start <= other < start + period - 0.02) for start in starts)
    assert worst <= most
    assert len(starts) >= 12


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("limit", "period"), [(1, 0.2), (3, 0.3)])
def test_b059_a_slow_limit_is_not_reset_by_an_early_expiry(
    limits: RateLimits, algorithm: str, limit: int, period: float
) -> None:
    """The keys live as long as they matter: beyond the longest window, and beyond the last slot that is planned."""
    windows = [Window(limit, period), Window(100, 864_000)]
    started = 0
    begun = time.monotonic()
    while time.monotonic() - begun < 5 * period:
        token = str(time.monotonic_ns())
        started += limits.charge("k", token, token, windows, algorithm, plans=False) is None
        time.sleep(0.01)
    assert started <= limit * 6
    client = limits._connection.client
    left = [client.pttl(name) for name in limits._keys("k") if client.exists(name)]
    assert left
    assert all(each > 864_000_000 for each in left)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b061_a_limit_whose_keys_lost_their_ttl_heals(limits: RateLimits, algorithm: str) -> None:
    windows = [Window(1, 0.2)]
    assert limits.charge("k", "A", "a", windows, algorithm, plans=False) is None
    client = limits._connection.client
    for name in limits._keys("k"):
        client.persist(name)
    assert limits.charge("k", "B", "b", windows, algorithm, plans=False) is not None
    time.sleep(0.4)
    assert limits.charge("k", "B", "b", windows, algorithm, plans=False) is None
    assert all(client.pttl(name) > 0 for name in limits._keys("k") if client.exists(name))


def test_a_slot_nobody_came_for_is_dropped(locks: Locks) -> None:
    hasty = RateLimits(locks.connection, locks.names, grace=0.01)
    windows = [Window(1, 0.05), Window(1000, 86400)]
    hasty.charge("k", "A", "a", windows, "sliding_window", plans=False)
    slot = hasty.charge("k", "gone", "g", windows, "sliding_window", plans=True)
    assert slot is not None
    client = hasty._connection.client
    _, plans, starts = hasty._keys("k")
    long_ago = int(slot.at * 1000) - 2 * 86_400_000
    client.zadd(starts, {"p:gone": long_ago})
    client.hset(plans, "gone", f"{long_ago}:")
    time.sleep(0.1)
    assert hasty.charge("k", "B", "b", windows, "sliding_window", plans=False) is None
    assert hasty.view("k").planned == ()
