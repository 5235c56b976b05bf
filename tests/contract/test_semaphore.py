"""The semaphore: never more than the limit inside, whoever dies, parks, comes late, or brings another limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from reactor_coord import coordination
from reactor_coord.coordination import HIGHEST_PRIORITY, Locks, Refused, Semaphores, Taken
from reactor_coord.coordination.inspect import holds, line, look, survey, waited_for
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, exit_code, in_child, kill, refused, taken, who


@pytest.fixture
def semaphores(locks: Locks) -> Semaphores:
    """Semaphores beside the locks, with the same keeper."""
    return Semaphores(locks.connection, locks.names, keeper=locks.keeper)


@pytest.fixture
def counter(semaphores: Semaphores) -> Counter:
    """Counts who is inside, over processes."""
    return Counter(semaphores)


class Counter:
    """Who is inside at once, and the most there ever were."""

    def __init__(self, semaphores: Semaphores) -> None:
        self._client = semaphores.connection.client
        self._name = f"{semaphores.names.prefix}:inside"

    def inside(self, seconds: float) -> None:
        self._client.zadd(f"{self._name}:most", {str(self._client.incr(self._name)): time.time()})
        time.sleep(seconds)
        self._client.decr(self._name)

    @property
    def most(self) -> int:
        return max(int(each) for each in self._client.zrange(f"{self._name}:most", 0, -1))


def fill(semaphores: Semaphores, limit: int, *, ttl: float = 10, names: str = "ABCDEFGH") -> list[Taken]:
    return [taken(semaphores.take("k", who(name), limit=limit, ttl=ttl)) for name in names[:limit]]


# ---- who may enter


def test_as_many_as_the_limit_and_no_more(semaphores: Semaphores) -> None:
    held = fill(semaphores, 3)
    assert [each.keys[0].how for each in held] == ["free"] * 3
    assert len({each.keys[0].fence for each in held}) == 3
    answer = refused(semaphores.take("k", who("X"), limit=3, ttl=10))
    assert (answer.primitive, answer.place, answer.waiting, answer.in_use) == ("semaphore", 1, 1, 3)
    assert answer.holder is not None
    assert answer.holder.owner in "ABC"
    assert 9 < answer.holder.remaining <= 10
    assert answer.fence == max(each.keys[0].fence for each in held)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(semaphores: Semaphores, limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        semaphores.take("k", who("A"), limit=limit, ttl=1)


def test_keys_and_primitives_are_independent(semaphores: Semaphores, locks: Locks) -> None:
    taken(locks.take(["k"], who("L"), ttl=10))
    fill(semaphores, 1)
    taken(semaphores.take("other", who("B"), limit=1, ttl=10))


def test_family_01_threads_never_exceed_the_limit(semaphores: Semaphores, counter: Counter) -> None:
    def body(name: str) -> None:
        for _ in range(15):
            held = taken(semaphores.wait("k", who(name, blocks=True), limit=2, ttl=10, timeout=20))
            counter.inside(0.002)
            semaphores.give(held)

    threads = [threading.Thread(target=body, args=(name,)) for name in "ABCDE"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.most == 2
    assert look("k", semaphores).holds == ()


def test_forked_processes_never_exceed_the_limit_and_use_it(semaphores: Semaphores, counter: Counter) -> None:
    def body(name: str) -> None:
        for _ in range(10):
            held = taken(semaphores.wait("k", who(name, blocks=True), limit=3, ttl=10, timeout=20))
            counter.inside(0.01)
            semaphores.give(held)

    children = [in_child(lambda name=name: body(name)) for name in "ABCDEF"]  # type: ignore[misc]
    assert [exit_code(pid) for pid in children] == [0] * 6
    assert counter.most == 3


def test_the_line_is_served_in_the_order_of_arrival(semaphores: Semaphores) -> None:
    first, second = fill(semaphores, 2)
    for name in "CDE":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    assert semaphores.give(second) == ("C",)
    assert semaphores.give(first) == ("D",)
    assert taken(semaphores.take("k", who("D"), limit=2, ttl=10)).keys[0].released_by == "A"
    assert taken(semaphores.take("k", who("C"), limit=2, ttl=10)).keys[0].how == "granted"
    assert [waiter.owner for waiter in line("k", semaphores)] == ["E"]


def test_a_granted_slot_is_not_taken_by_who_comes_by(semaphores: Semaphores) -> None:
    (only,) = fill(semaphores, 1)
    refused(semaphores.take("k", who("B"), limit=1, ttl=10))
    assert semaphores.give(only) == ("B",)
    refused(semaphores.take("k", who("C"), limit=1, ttl=10, join=False))
    assert taken(semaphores.take("k", who("B"), limit=1, ttl=10)).keys[0].how == "granted"


# ---- re-entrancy and identity


def test_reenter_11_a_tree_has_one_slot_however_often_it_nests(semaphores: Semaphores) -> None:
    outer = taken(semaphores.take("k", who("A"), limit=1, ttl=10))
    inner = taken(semaphores.take("k", who("A"), limit=1, ttl=10))
    assert inner.keys[0].how == "reentered"
    assert inner.keys[0].fence == outer.keys[0].fence
    assert [hold.count for hold in holds(semaphores)] == [2]
    semaphores.give(outer)
    refused(semaphores.take("k", who("B"), limit=1, ttl=10, join=False))
    semaphores.give(inner)
    taken(semaphores.take("k", who("B"), limit=1, ttl=10))


def test_the_owner_alone_opens_nothing(semaphores: Semaphores) -> None:
    held = taken(semaphores.take("k", who("A", "1"), limit=1, ttl=10))
    refused(semaphores.take("k", who("A", "2"), limit=1, ttl=10, join=False))
    semaphores.give(held)
    taken(semaphores.take("k", who("A", "2"), limit=1, ttl=10))


def test_a_successor_beside_its_predecessor_counts_against_the_limit(semaphores: Semaphores) -> None:
    taken(semaphores.take("k", who("A", "1"), limit=2, ttl=10))
    taken(semaphores.take("k", who("A", "2"), limit=2, ttl=10))
    assert refused(semaphores.take("k", who("B"), limit=2, ttl=10)).in_use == 2


def test_the_same_token_counts_once(semaphores: Semaphores) -> None:
    first = taken(semaphores.take("k", who("A"), limit=2, ttl=10, token="t"))
    again = taken(semaphores.take("k", who("A"), limit=2, ttl=10, token="t"))
    assert again.keys == first.keys
    semaphores.give(first)
    assert look("k", semaphores).holds == ()


def test_given_twice_it_frees_one(semaphores: Semaphores) -> None:
    first, _ = fill(semaphores, 2)
    for name in "CDE":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    assert semaphores.give(first) == ("C",)
    assert semaphores.give(first) == ("C",)
    assert [waiter.owner for waiter in line("k", semaphores)] == ["D", "E"]


def test_a_parked_slot_waits_for_its_owner_and_is_adopted_by_any_claim(semaphores: Semaphores) -> None:
    held = taken(semaphores.take("k", who("A", "1"), limit=1, ttl=10))
    assert semaphores.park(held, 60) == frozenset()
    refused(semaphores.take("k", who("B"), limit=1, ttl=10, join=False))
    adopted = taken(semaphores.take("k", who("A", "2"), limit=1, ttl=10))
    assert adopted.keys[0].how == "parked"
    assert adopted.keys[0].fence == held.keys[0].fence
    semaphores.give(held)
    refused(semaphores.take("k", who("B"), limit=1, ttl=10, join=False))
    semaphores.give(adopted)
    taken(semaphores.take("k", who("B"), limit=1, ttl=10))


def test_a_tree_that_parked_twice_has_one_slot_again_when_it_resumes(semaphores: Semaphores, woken: list[str]) -> None:
    stale = taken(semaphores.take("k", who("A", "1"), limit=2, ttl=10))
    held = taken(semaphores.take("k", who("A", "2"), limit=2, ttl=10))
    semaphores.park(stale, 60)
    semaphores.park(held, 60)
    refused(semaphores.take("k", who("B"), limit=2, ttl=10))
    assert taken(semaphores.take("k", who("A", "3"), limit=2, ttl=10)).keys[0].how == "parked"
    assert woken == ["B"]
    assert sorted(hold.owner for hold in look("k", semaphores).holds) == ["A", "B"]


def test_leaving_gives_up_the_place_the_grant_and_if_asked_what_is_parked(semaphores: Semaphores) -> None:
    first, second = fill(semaphores, 2)
    for name in "CDE":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    assert semaphores.leave(["k"], who("D")) == ()
    assert semaphores.give(first) == ("C",)
    assert semaphores.leave(["k"], who("C")) == ("E",)
    semaphores.park(second, 60)
    assert semaphores.leave(["k"], who("B")) == ()
    assert semaphores.leave(["k"], who("B"), parked=True) == ()
    assert [hold.owner for hold in look("k", semaphores).holds] == ["E"]


@pytest.mark.parametrize("primitive", ["lock", "semaphore"])
def test_who_steps_aside_is_granted_nothing_and_keeps_its_place(
    primitive: str, locks: Locks, semaphores: Semaphores
) -> None:
    of: Any = locks if primitive == "lock" else semaphores

    def take(name: str) -> Taken | Refused:
        if primitive == "lock":
            return locks.take(["k"], who(name), ttl=10)
        return semaphores.take("k", who(name), limit=1, ttl=10)

    first = taken(take("A"))
    for name in "BC":
        refused(take(name))
    assert of.give(first) == ("B",)
    assert of.leave(["k"], who("B"), keeps_ticket=True) == ("C",)
    assert line("k", of) == []
    refused(take("D"))
    assert refused(take("B")).place == 1
    assert [waiter.owner for waiter in line("k", of)] == ["B", "D"]
    assert line("k", of)[0].lapses == 0


# ---- leases


def test_each_slot_has_a_lease_of_its_own(semaphores: Semaphores) -> None:
    short = taken(semaphores.take("k", who("A"), limit=2, ttl=0.2))
    long = taken(semaphores.take("k", who("B"), limit=2, ttl=10))
    refused(semaphores.take("k", who("C"), limit=2, ttl=10, join=False))
    time.sleep(0.25)
    assert semaphores.renew(short) == {"k"}
    assert semaphores.lost(long) == frozenset()
    third = taken(semaphores.take("k", who("C"), limit=2, ttl=10))
    assert semaphores.renew(short) == {"k"}
    semaphores.give(short)
    refused(semaphores.take("k", who("D"), limit=2, ttl=10, join=False))
    assert third.keys[0].fence > long.keys[0].fence


def test_the_keeper_keeps_slots_beside_locks(semaphores: Semaphores, locks: Locks) -> None:
    held = taken(semaphores.take("k", who("A"), limit=1, ttl=0.4))
    lost: list[str] = []
    semaphores.watch(held, lost.append)
    lock = taken(locks.take(["k"], who("A"), ttl=0.4))
    locks.watch(lock, lost.append)
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        refused(semaphores.take("k", who("B"), limit=1, ttl=1, join=False))
        time.sleep(0.02)
    assert lost == []
    assert look("k", semaphores).hold is not None
    semaphores.release_by_force("k", fence=held.keys[0].fence)
    eventually(lambda: lost == ["k"])
    locks.give(lock)


def test_family_10_a_killed_holders_slot_is_back_after_its_ttl(semaphores: Semaphores) -> None:
    def hold() -> None:
        held = taken(semaphores.take("k", who("dying"), limit=2, ttl=1))
        semaphores.watch(held, lambda key: None)
        time.sleep(60)

    taken(semaphores.take("k", who("A"), limit=2, ttl=30))
    pid = in_child(hold)
    eventually(lambda: len(look("k", semaphores).holds) == 2)
    time.sleep(1.2)
    refused(semaphores.take("k", who("B"), limit=2, ttl=10, join=False))
    kill(pid)
    begun = time.monotonic()
    held = taken(semaphores.wait("k", who("B", blocks=True), limit=2, ttl=10, timeout=5))
    assert time.monotonic() - begun < 1.2
    assert held.keys[0].how == "free"


def test_what_lapsed_is_handed_out_by_who_tends(semaphores: Semaphores) -> None:
    fill(semaphores, 2, ttl=0.2)
    for name in "CDE":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    assert semaphores.tend() == ()
    time.sleep(0.25)
    assert semaphores.tend() == ("C", "D")
    assert semaphores.tend() == ()


def test_who_never_comes_for_its_grant_is_passed_over_and_keeps_its_ticket(locks: Locks) -> None:
    semaphores = Semaphores(locks.connection, locks.names, handoff_grace=0.1, keeper=locks.keeper)
    (only,) = fill(semaphores, 1)
    for name in "BC":
        refused(semaphores.take("k", who(name), limit=1, ttl=10))
    assert semaphores.give(only) == ("B",)
    time.sleep(0.12)
    assert semaphores.tend() == ("C",)
    assert refused(semaphores.take("k", who("B"), limit=1, ttl=10)).place == 1


def test_b046_a_resurrected_holder_cannot_push_capacity_above_the_limit(semaphores: Semaphores) -> None:
    def hold() -> None:
        held = taken(semaphores.take("k", who("stopped"), limit=1, ttl=0.5))
        semaphores.watch(held, lambda key: None)
        time.sleep(1)
        for _ in range(3):
            semaphores.give(held)

    pid = in_child(hold)
    eventually(lambda: look("k", semaphores).hold)
    os.kill(pid, signal.SIGSTOP)
    second = taken(semaphores.wait("k", who("B", blocks=True), limit=1, ttl=30, timeout=5))
    for number in range(20):
        refused(semaphores.take("k", who(f"w{number}"), limit=1, ttl=10))
    os.kill(pid, signal.SIGCONT)
    assert exit_code(pid) == 0
    assert [hold.owner for hold in look("k", semaphores).holds] == ["B"]
    assert semaphores.give(second) == ("w0",)
    assert [(hold.owner, hold.state) for hold in look("k", semaphores).holds] == [("w0", "granted")]


# ---- limits that change


def test_family_10_a_raised_limit_takes_effect_at_once(semaphores: Semaphores, woken: list[str]) -> None:
    fill(semaphores, 2)
    for name in "CDEFG":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    newcomer = taken(semaphores.take("k", who("N"), limit=5, ttl=10))
    assert newcomer.keys[0].how == "free"
    assert woken == ["C", "D"]
    assert len(look("k", semaphores).holds) == 5
    assert look("k", semaphores).limit == 5


def test_family_10_b051_a_lowered_limit_admits_nobody_until_below_it(semaphores: Semaphores) -> None:
    held = fill(semaphores, 5)
    refused(semaphores.take("k", who("X"), limit=2, ttl=10))
    for each in held[:3]:
        assert semaphores.give(each) == ()
        refused(semaphores.take("k", who("Y"), limit=2, ttl=10, join=False))
    assert semaphores.give(held[3]) == ("X",)
    taken(semaphores.take("k", who("X"), limit=2, ttl=10))
    refused(semaphores.take("k", who("Y"), limit=2, ttl=10, join=False))
    taken(semaphores.take("k", who("Y"), limit=8, ttl=10))


def test_b051_those_inside_go_on_under_a_lowered_limit(semaphores: Semaphores) -> None:
    first, second, third = fill(semaphores, 3)
    taken(semaphores.take("k", who("A"), limit=1, ttl=10))
    semaphores.park(second, 60)
    assert taken(semaphores.take("k", who("B", "other"), limit=1, ttl=10)).keys[0].how == "parked"
    assert semaphores.renew(third) == frozenset()
    assert semaphores.renew(first) == frozenset()


def test_a_grant_made_under_a_higher_limit_does_not_enter_under_a_lower(semaphores: Semaphores) -> None:
    first, *_ = fill(semaphores, 3)
    for name in "XY":
        refused(semaphores.take("k", who(name), limit=3, ttl=10))
    assert semaphores.give(first) == ("X",)
    answer = refused(semaphores.take("k", who("X"), limit=2, ttl=10))
    assert (answer.place, answer.in_use) == (1, 2)


def test_b055_each_key_has_its_own_limit_whatever_the_others_fill(semaphores: Semaphores) -> None:
    for number in range(5):
        for owner in range(number % 3):
            taken(semaphores.take(f"k{number}", who(f"{number}.{owner}"), limit=2, ttl=10))
    for number in range(5):
        entered = 0
        for arrival in range(20):
            answer = semaphores.take(f"k{number}", who(f"a{arrival}"), limit=2, ttl=10)
            entered += isinstance(answer, Taken)
        assert entered == 2 - number % 3
        assert len(look(f"k{number}", semaphores).holds) == 2


# ---- the line's options, of both primitives


def test_priority_comes_before_arrival_and_a_rollback_before_all(semaphores: Semaphores, locks: Locks) -> None:
    held = fill(semaphores, 1)[0]
    lock = taken(locks.take(["k"], who("A"), ttl=10))
    for name, priority in (("low", -1), ("plain", 0), ("high", 7), ("rollback", HIGHEST_PRIORITY), ("late", 0)):
        refused(semaphores.take("k", who(name, priority=priority), limit=1, ttl=10))
        refused(locks.take(["k"], who(name, priority=priority), ttl=10))
    order = ["rollback", "high", "plain", "late", "low"]
    assert [waiter.owner for waiter in line("k", semaphores)] == order
    assert [waiter.owner for waiter in line("k", locks)] == order
    assert semaphores.give(held) == ("rollback",)
    assert locks.give(lock) == ("rollback",)


@pytest.mark.parametrize("primitive", ["lock", "semaphore"])
def test_max_waiting_refuses_the_one_too_many_without_joining(
    primitive: str, locks: Locks, semaphores: Semaphores
) -> None:
    of: Any = locks if primitive == "lock" else semaphores

    def take(name: str, **more: Any) -> Taken | Refused:
        if primitive == "lock":
            return locks.take(["k"], who(name), ttl=10, **more)
        return semaphores.take("k", who(name), limit=1, ttl=10, **more)

    first = taken(take("A"))
    for name in "BC":
        assert not refused(take(name, max_waiting=2)).is_full
    answer = refused(take("D", max_waiting=2))
    assert (answer.is_full, answer.place, answer.waiting) == (True, 0, 2)
    assert not refused(take("C", max_waiting=2)).is_full, "who stands in line may ask again"
    assert [waiter.owner for waiter in line("k", of)] == ["B", "C"]
    of.give(first)
    assert not refused(take("D", max_waiting=2)).is_full


def test_max_waiting_counts_blocking_waiters_and_not_dead_ones(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    threads = [
        threading.Thread(target=locks.wait, args=(["k"], who("B", blocks=True)), kwargs={"ttl": 10, "timeout": 0.6})
    ]
    threads[0].start()
    eventually(lambda: line("k", locks))
    begun = time.monotonic()
    answer = refused(locks.wait(["k"], who("C", blocks=True), ttl=10, timeout=5, max_waiting=1))
    assert answer.is_full
    assert time.monotonic() - begun < 0.4
    threads[0].join()
    assert not refused(locks.take(["k"], who("D"), ttl=10, max_waiting=1)).is_full
    locks.give(held)


def test_max_waiting_of_several_keys_joins_no_line_at_all(locks: Locks) -> None:
    taken(locks.take(["b"], who("A"), ttl=10))
    refused(locks.take(["b"], who("B"), ttl=10))
    answer = refused(locks.take(["a", "b"], who("C"), ttl=10, max_waiting=1))
    assert (answer.is_full, answer.key) == (True, "b")
    assert line("a", locks) == []


# ---- what is seen and what is left


def test_holders_and_lines_are_seen(semaphores: Semaphores, locks: Locks) -> None:
    a = taken(semaphores.take("k", who("A", reactor="Mailing", step="send"), limit=2, ttl=10))
    taken(semaphores.take("k", who("B"), limit=2, ttl=20))
    refused(semaphores.take("k", who("C"), limit=2, ttl=10))
    semaphores.park(a, 60)
    first, second = look("k", semaphores).holds
    assert (first.primitive, first.owner, first.reactor, first.step) == ("semaphore", "A", "Mailing", "send")
    assert (first.state, first.fence, first.count, first.waiting) == ("parked", a.keys[0].fence, 1, 1)
    assert 59 < first.remaining <= 60
    assert 19 < second.remaining <= 20
    (waiter,) = line("k", semaphores)
    assert (waiter.primitive, waiter.owner, waiter.place) == ("semaphore", "C", 1)
    assert [(view.key, view.primitive, view.limit) for view in waited_for(semaphores)] == [("k", "semaphore", 2)]
    assert survey(locks) == []


def test_the_processes_own_survey_has_both_primitives(reactor_prefix: str) -> None:
    lock = taken(coordination.locks().take(["k"], who("A"), ttl=10))
    slot = taken(coordination.semaphores().take("k", who("A"), limit=1, ttl=10))
    assert [(view.key, view.primitive) for view in survey()] == [("k", "lock"), ("k", "semaphore")]
    assert [view.primitive for view in holds(limit=1)] == ["lock"]
    assert [view.primitive for view in holds(offset=1, limit=1)] == ["semaphore"]
    coordination.locks().give(lock)
    coordination.semaphores().give(slot)
    assert holds() == []


def test_nothing_is_left_that_does_not_end_by_itself(semaphores: Semaphores) -> None:
    held = fill(semaphores, 2)
    for name in "CD":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    client, prefix = semaphores.connection.client, semaphores.names.prefix
    names = list(client.scan_iter(match=f"{prefix}:*"))
    assert names
    assert all(client.pttl(name) > 0 for name in names)
    for name in "CD":
        semaphores.leave(["k"], who(name))
    for each in held:
        semaphores.give(each)
    left = {bytes(name).decode().rpartition(":")[2] for name in client.scan_iter(match=f"{prefix}:*")}
    assert left <= {"fence", "meta"}


def test_an_operator_takes_the_slot_that_was_shown_and_no_other(semaphores: Semaphores) -> None:
    first, second = fill(semaphores, 2)
    refused(semaphores.take("k", who("C"), limit=2, ttl=10))
    assert semaphores.release_by_force("k", fence=1) == (False, ())
    assert semaphores.release_by_force("k", fence=first.keys[0].fence, by="ops") == (True, ("C",))
    assert semaphores.renew(first) == {"k"}
    assert semaphores.renew(second) == frozenset()
    granted = taken(semaphores.take("k", who("C"), limit=2, ttl=10)).keys[0]
    assert granted.released_by == "ops"


def test_odd_owners_and_keys_do_no_harm(make_locks: MakeLocks) -> None:
    locks = make_locks()
    semaphores = Semaphores(locks.connection, locks.names, keeper=locks.keeper)
    for name in ('a|b"{}\n\\', "x" * 300, "ключ", "\ud800", "a\x1fb"):
        held = taken(semaphores.take(name, who(name), limit=1, ttl=10))
        refused(semaphores.take(name, who("B"), limit=1, ttl=10))
        assert semaphores.renew(held) == frozenset()
        assert semaphores.give(held) == ("B",)


@pytest.mark.timeout(120)
def test_b156_a_large_backlog_costs_a_bounded_number_of_wakes(semaphores: Semaphores) -> None:
    limit, many = 5, 1000
    held = [taken(semaphores.take("k", who(f"h{each}"), limit=limit, ttl=60)) for each in range(limit)]
    for number in range(many):
        refused(semaphores.take("k", who(f"w{number}"), limit=limit, ttl=60))
    woken: list[str] = []
    begun = time.monotonic()
    while held:
        wakes = semaphores.give(held.pop(0))
        assert len(wakes) <= 1
        woken += wakes
        held += [taken(semaphores.take("k", who(name), limit=limit, ttl=60)) for name in wakes]
        assert len(held) <= limit
    assert woken == [f"w{number}" for number in range(many)]
    assert time.monotonic() - begun < 20
