"""The keeper: leases kept alive, losses told once, what Redis refused finished in the background, forks begun anew."""

from __future__ import annotations

import os
import threading
import time

from reactor_coord.coordination import Locks, Refused, Taken
from reactor_coord.coordination import keeper as keepers
from reactor_coord.coordination.inspect import look
from reactor_coord.coordination.keeper import Keeper
from reactor_coord.testing.proxy import Proxy
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, exit_code, in_child, refused, taken, who


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reactor-coord-keeper"]


def test_b002_a_body_of_many_ttls_never_loses_its_lock(locks: Locks) -> None:
    lost: list[str] = []
    held = taken(locks.take(["k"], who("A"), ttl=0.3))
    locks.watch(held, lost.append)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert isinstance(locks.take(["k"], who("B"), ttl=1, join=False), Refused)
        time.sleep(0.01)
    assert lost == []
    locks.give(held)
    assert isinstance(locks.take(["k"], who("B"), ttl=1), Taken)


def test_b210_no_thread_before_there_is_something_to_keep(make_locks: MakeLocks) -> None:
    before = set(threads())
    locks = make_locks()
    held = taken(locks.take(["k"], who("A"), ttl=10))
    assert set(threads()) <= before  # those of other tests may end meanwhile
    locks.watch(held, lambda key: None)
    assert len(set(threads()) - before) == 1
    locks.give(held)


def test_the_thread_ends_when_nothing_is_left(make_locks: MakeLocks, monkeypatch: object) -> None:
    monkeypatch.setattr(keepers, "LINGER", 0.05)  # type: ignore[attr-defined]
    locks = make_locks()
    before = len(threads())
    for _ in range(2):
        held = taken(locks.take(["k"], who("A"), ttl=0.3))
        locks.watch(held, lambda key: None)
        locks.give(held)
        eventually(lambda: len(threads()) <= before)


def test_a_loss_is_told_once_for_each_key_from_the_keepers_thread(locks: Locks) -> None:
    told: list[tuple[str, str]] = []
    held = taken(locks.take(["a", "b"], who("A"), ttl=0.3))
    locks.watch(held, lambda key: told.append((key, threading.current_thread().name)))
    view = look("a", locks).hold
    assert view is not None
    locks.release_by_force("a", fence=view.fence)
    eventually(lambda: told == [("a", "reactor-coord-keeper")])
    time.sleep(0.4)
    assert told == [("a", "reactor-coord-keeper")]
    assert isinstance(locks.take(["b"], who("B"), ttl=1, join=False), Refused)  # the other is still kept
    assert isinstance(locks.take(["a"], who("B"), ttl=1, join=False), Taken)
    locks.give(held)
    assert locks.keeper.watching == 0


def test_b013_no_renewal_follows_a_give(locks: Locks) -> None:
    for pause in (0.0, 0.01, 0.02, 0.03):
        told: list[str] = []
        held = taken(locks.take(["k"], who("A"), ttl=0.06))
        locks.watch(held, told.append)
        time.sleep(pause)
        locks.give(held)
        assert look("k", locks).hold is None
        time.sleep(0.08)
        assert look("k", locks).hold is None
        assert told == []


def test_a_parked_hold_is_not_renewed(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=0.3))
    locks.watch(held, lambda key: None)
    locks.park(held, 0.5)
    time.sleep(0.55)
    assert isinstance(locks.take(["k"], who("B"), ttl=1), Taken)


def test_b011_without_renewal_the_end_of_the_lease_is_told(locks: Locks) -> None:
    told: list[float] = []
    begun = time.monotonic()
    held = taken(locks.take(["k"], who("A"), ttl=0.3))
    locks.watch(held, lambda key: told.append(time.monotonic() - begun), prolong=False)
    eventually(lambda: told)
    assert 0.29 < told[0] < 0.45
    other = taken(locks.take(["k"], who("B"), ttl=10))
    locks.give(held)
    assert locks.renew(other) == frozenset()


def test_without_renewal_of_its_own_it_lives_as_long_as_an_inner_one_renews(locks: Locks) -> None:
    told: list[str] = []
    outer = taken(locks.take(["k"], who("A"), ttl=0.2))
    inner = taken(locks.take(["k"], who("A"), ttl=0.2))
    locks.watch(outer, told.append, prolong=False)
    locks.watch(inner, told.append)
    time.sleep(0.6)
    assert told == []
    locks.give(inner)
    eventually(lambda: told == ["k"])


def test_b012_cut_off_from_redis_it_is_lost_when_the_lease_is_over(make_locks: MakeLocks, proxy: Proxy) -> None:
    locks = make_locks(proxy.url)
    told: list[float] = []
    begun = time.monotonic()
    held = taken(locks.take(["k"], who("A"), ttl=0.6))
    locks.watch(held, lambda key: told.append(time.monotonic() - begun))
    proxy.refuse()
    eventually(lambda: told)
    assert 0.5 < told[0] < 1.0
    proxy.refuse(False)
    time.sleep(0.5)
    assert len(told) == 1


def test_b012_a_network_that_swallows_everything_is_noticed_in_time(make_locks: MakeLocks, proxy: Proxy) -> None:
    locks = make_locks(proxy.url)
    told: list[float] = []
    begun = time.monotonic()
    held = [taken(locks.take([str(number)], who("A"), ttl=1)) for number in range(8)]
    for each in held:
        locks.watch(each, lambda key: told.append(time.monotonic() - begun))
    proxy.pause()
    eventually(lambda: len(told) == 8)
    assert max(told) < 3
    proxy.resume()


def test_b014_a_short_outage_loses_nothing(make_locks: MakeLocks, proxy: Proxy) -> None:
    locks = make_locks(proxy.url)
    told: list[str] = []
    held = [taken(locks.take([str(number)], who("A"), ttl=1)) for number in range(8)]
    for each in held:
        locks.watch(each, told.append)
    for _ in range(6):
        proxy.cut()
        time.sleep(0.1)
    proxy.refuse()
    time.sleep(0.3)
    proxy.refuse(False)
    time.sleep(1.2)
    assert told == []
    assert [locks.lost(each) for each in held] == [frozenset()] * 8


def test_an_error_in_on_lost_disturbs_nobody(locks: Locks) -> None:
    told: list[str] = []

    def raise_(key: str) -> None:
        raise RuntimeError(key)

    for name, on_lost in (("a", raise_), ("b", told.append)):
        locks.watch(taken(locks.take([name], who("A"), ttl=0.2)), on_lost)
        view = look(name, locks).hold
        assert view is not None
        locks.release_by_force(name, fence=view.fence)
    eventually(lambda: told == ["b"])


def test_b003_a_forked_child_keeps_its_own_and_not_its_parents(locks: Locks) -> None:
    mine = taken(locks.take(["parent"], who("A"), ttl=0.4))
    locks.watch(mine, lambda key: None)

    def body() -> None:
        assert locks.keeper.watching == 0
        assert not threads()
        held = taken(locks.take(["child"], who("B"), ttl=0.3))
        told: list[str] = []
        locks.watch(held, told.append)
        time.sleep(1)
        assert told == []
        assert locks.lost(held) == frozenset()
        locks.give(held)

    assert exit_code(in_child(body)) == 0
    assert locks.lost(mine) == frozenset()
    locks.give(mine)

    def inherit() -> None:
        time.sleep(0.5)
        os._exit(0)

    taken(locks.take(["left"], who("A"), ttl=0.3))
    in_child_pid = in_child(inherit)
    assert exit_code(in_child_pid) == 0
    assert isinstance(locks.take(["left"], who("B"), ttl=1), Taken)


def test_forgotten_entries_do_not_pile_up(locks: Locks) -> None:
    for _ in range(2000):
        held = taken(locks.take(["k"], who("A"), ttl=60))
        locks.watch(held, lambda key: None)
        locks.give(held)
    assert len(locks.keeper._heap) < 500
    assert locks.keeper.watching == 0


def test_errands_are_tried_until_they_succeed_or_are_of_no_use(woken: list[str]) -> None:
    from reactor_coord.errors import CoordinationUnavailable

    tries: list[str] = []
    keeper = Keeper()

    def fails_twice() -> tuple[str, ...]:
        tries.append("A")
        if len(tries) < 3:
            raise CoordinationUnavailable
        return ("somebody",)

    keeper.later(fails_twice, time.monotonic() + 10)
    eventually(lambda: woken == ["somebody"])

    def fails() -> tuple[str, ...]:
        tries.append("B")
        raise CoordinationUnavailable

    keeper.later(fails, time.monotonic() + 0.2)
    time.sleep(0.5)
    seen = tries.count("B")
    assert 1 < seen < 8
    time.sleep(0.3)
    assert tries.count("B") == seen


def test_a_loss_can_be_seen_while_many_others_are_kept(locks: Locks) -> None:
    told: list[str] = []
    held = [taken(locks.take([str(number)], who("A"), ttl=0.5)) for number in range(60)]
    for each in held:
        locks.watch(each, told.append)
    view = look("7", locks).hold
    assert view is not None
    locks.release_by_force("7", fence=view.fence)
    eventually(lambda: told == ["7"])
    time.sleep(1)
    assert told == ["7"]
    refused(locks.take(["8"], who("B"), ttl=1, join=False))
    for each in held:
        locks.give(each)
