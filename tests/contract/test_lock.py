"""Taking, re-entering, keeping and giving back: who may and who may not."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from reactor_coord.coordination import Locks, Refused, Taken
from reactor_coord.coordination.inspect import look
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, exit_code, in_child, kill, refused, taken, who


def test_lock_01_same_key_never_overlaps(locks: Locks) -> None:
    inside: list[str] = []
    most: list[int] = []

    def body(name: str) -> None:
        for _ in range(20):
            held = taken(locks.wait(["k"], who(name, blocks=True), ttl=10, timeout=20))
            inside.append(name)
            most.append(len(inside))
            time.sleep(0.002)
            inside.remove(name)
            locks.give(held)

    threads = [threading.Thread(target=body, args=(name,)) for name in ("A", "B", "C")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 60


def test_lock_02_different_keys_are_independent(locks: Locks) -> None:
    assert isinstance(locks.take(["a"], who("A"), ttl=10), Taken)
    assert isinstance(locks.take(["b"], who("B"), ttl=10), Taken)


def test_lock_03_given_back_it_is_free(locks: Locks) -> None:
    first = taken(locks.take(["k"], who("A"), ttl=10))
    assert first.keys[0].how == "free"
    assert locks.give(first) == ()
    assert taken(locks.take(["k"], who("B"), ttl=10)).keys[0].how == "free"


def test_refused_tells_who_holds_it_and_where_one_stands(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A", reactor="Payment", step="charge"), ttl=10))
    answer = refused(locks.take(["k"], who("B"), ttl=10))
    assert (answer.key, answer.place, answer.waiting, answer.busy, answer.wakes) == ("k", 1, 1, ("k",), ())
    holder = answer.holder
    assert holder is not None
    assert (holder.owner, holder.claim, holder.state, holder.count) == ("A", "claim of A", "held", 1)
    assert (holder.execution, holder.reactor, holder.step) == ("A", "Payment", "charge")
    assert holder.fence == held.keys[0].fence
    assert 9 < holder.remaining <= 10
    assert abs(holder.since - time.time()) < 5
    assert refused(locks.take(["k"], who("C"), ttl=10)).place == 2


def test_a_refused_try_does_not_join(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=10))
    assert refused(locks.take(["k"], who("B"), ttl=10, join=False)).place == 0
    assert refused(locks.take(["k"], who("C", blocks=True), ttl=10)).waiting == 0


@pytest.mark.parametrize("ttl", [0, -1, -0.5])
def test_b001_a_ttl_that_is_no_time_is_refused(locks: Locks, ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        locks.take(["k"], who("A"), ttl=ttl)


def test_b001_a_subsecond_ttl_lives_through_renewals(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=0.4))
    lost: list[str] = []
    locks.watch(held, lost.append)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert isinstance(locks.take(["k"], who("B"), ttl=1, join=False), Refused)
        time.sleep(0.02)
    assert lost == []
    locks.give(held)


def test_no_keys_or_a_bare_string_is_refused(locks: Locks) -> None:
    with pytest.raises(ValueError, match="at least one key"):
        locks.take([], who("A"), ttl=1)
    with pytest.raises(ValueError, match="at least one key"):
        locks.take("key", who("A"), ttl=1)


def test_reenter_the_owner_under_its_claim_counts_up(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A"), ttl=10))
    inner = taken(locks.take(["k"], who("A"), ttl=10))
    assert inner.keys[0].how == "reentered"
    assert inner.keys[0].fence == outer.keys[0].fence
    locks.give(inner)
    assert isinstance(locks.take(["k"], who("B"), ttl=10, join=False), Refused)
    locks.give(outer)
    assert isinstance(locks.take(["k"], who("B"), ttl=10), Taken)


def test_reenter_the_outer_may_be_given_first(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A"), ttl=10))
    inner = taken(locks.take(["k"], who("A"), ttl=10))
    locks.give(outer)
    assert isinstance(locks.take(["k"], who("B"), ttl=10, join=False), Refused)
    locks.give(inner)
    assert isinstance(locks.take(["k"], who("B"), ttl=10), Taken)


def test_b018_reentry_raises_the_lease_and_never_shortens_it(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A"), ttl=5))
    taken(locks.take(["k"], who("A"), ttl=30))
    assert refused(locks.take(["k"], who("B"), ttl=1, join=False)).holder.remaining > 25  # type: ignore[union-attr]
    taken(locks.take(["k"], who("A"), ttl=1))
    locks.renew(outer)
    assert refused(locks.take(["k"], who("B"), ttl=1, join=False)).holder.remaining > 25  # type: ignore[union-attr]


def test_b020_the_owner_alone_opens_nothing_that_is_held(locks: Locks) -> None:
    first = taken(locks.take(["k"], who("A", "claim 1"), ttl=10))
    answer = refused(locks.take(["k"], who("A", "claim 2"), ttl=10))
    assert answer.holder is not None
    assert answer.holder.claim == "claim 1"
    assert locks.give(replace(first, who=who("A", "claim 2"))) == ()
    assert locks.renew(replace(first, who=who("A", "claim 2"))) == {"k"}
    assert locks.renew(first) == frozenset()


def test_take_is_idempotent_by_token(locks: Locks) -> None:
    first = taken(locks.take(["k"], who("A"), ttl=10, token="t"))
    again = taken(locks.take(["k"], who("A"), ttl=10, token="t"))
    assert (again.keys[0].how, again.keys[0].fence) == ("free", first.keys[0].fence)
    locks.give(again)
    assert isinstance(locks.take(["k"], who("B"), ttl=10), Taken)


def test_give_is_idempotent_by_token(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A"), ttl=10))
    inner = taken(locks.take(["k"], who("A"), ttl=10))
    locks.give(inner)
    locks.give(inner)
    assert isinstance(locks.take(["k"], who("B"), ttl=10, join=False), Refused)
    locks.give(outer)


def test_give_sent_twice_answers_the_same_wake(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    refused(locks.take(["k"], who("B"), ttl=10))
    assert locks.give(held) == ("B",)
    assert locks.give(held) == ("B",)
    taken(locks.take(["k"], who("B"), ttl=10))
    assert locks.give(held) == ()


def test_b022_a_late_release_does_not_free_the_successor(locks: Locks) -> None:
    old = taken(locks.take(["k"], who("A"), ttl=0.1))
    time.sleep(0.15)
    new = taken(locks.take(["k"], who("B"), ttl=10))
    assert locks.give(old) == ()
    assert locks.renew(old) == {"k"}
    assert locks.park(old, 10) == {"k"}
    assert isinstance(locks.take(["k"], who("C"), ttl=10, join=False), Refused)
    assert new.keys[0].fence > old.keys[0].fence


def test_b015_reentry_after_silent_expiry_steals_nothing(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=0.1))
    time.sleep(0.15)
    taken(locks.take(["k"], who("B"), ttl=10))
    assert isinstance(locks.take(["k"], who("A"), ttl=10, join=False), Refused)


def test_an_old_token_of_the_same_claim_is_lost_after_expiry(locks: Locks) -> None:
    old = taken(locks.take(["k"], who("A"), ttl=0.1))
    time.sleep(0.15)
    new = taken(locks.take(["k"], who("A"), ttl=10))
    assert locks.lost(old) == {"k"}
    locks.give(old)
    assert locks.lost(new) == frozenset()


def test_lost_looks_and_prolongs_nothing(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=0.3))
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        assert locks.lost(held) == frozenset()
    eventually(lambda: locks.lost(held) == {"k"}, within=0.5)


def test_park_keeps_the_key_for_its_owner_under_any_claim(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A", "1"), ttl=0.2))
    inner = taken(locks.take(["k"], who("A", "1"), ttl=0.2))
    assert locks.park(inner, 20) == frozenset()
    assert locks.park(outer, 10) == frozenset()
    time.sleep(0.25)
    answer = refused(locks.take(["k"], who("B"), ttl=10))
    assert answer.holder is not None
    assert answer.holder.state == "parked"
    assert answer.holder.remaining > 18
    adopted = taken(locks.take(["k"], who("A", "2"), ttl=10))
    assert (adopted.keys[0].how, adopted.keys[0].fence) == ("parked", outer.keys[0].fence)
    assert adopted.keys[0].since == outer.keys[0].since
    assert locks.give(inner) == ()  # left behind, and gone with the adoption
    assert locks.renew(outer) == {"k"}
    assert locks.give(adopted) == ("B",)


def test_what_is_parked_can_still_be_given_by_who_parked_it(locks: Locks) -> None:
    outer = taken(locks.take(["k"], who("A"), ttl=10))
    inner = taken(locks.take(["k"], who("A"), ttl=10))
    locks.park(outer, 10)
    locks.give(inner)
    assert isinstance(locks.take(["k"], who("B"), ttl=10, join=False), Refused)
    locks.give(outer)
    assert isinstance(locks.take(["k"], who("B"), ttl=10), Taken)


def test_lock_13_fences_only_grow(make_locks: MakeLocks, own_server: object) -> None:
    locks = make_locks(own_server.url)  # type: ignore[attr-defined]
    fences: list[int] = []
    for number in range(50):
        held = taken(locks.take(["k"], who(f"holder {number}"), ttl=0.02 if number % 7 == 0 else 10))
        fences.append(held.keys[0].fence)
        if number % 7 == 0:
            time.sleep(0.03)  # it lapses
        else:
            locks.give(held)
        if number % 10 == 0:
            locks.connection.client.flushall()
    assert fences == sorted(set(fences))
    assert max(fences) < 2**53


def test_a_fence_grows_though_the_clock_went_back(locks: Locks, reactor_prefix: str) -> None:
    future = int((time.time() + 3600) * 1_000_000)
    locks.connection.client.set(f"{reactor_prefix}:{{lock:k}}:fence", future)
    first = taken(locks.take(["k"], who("A"), ttl=10))
    refused(locks.take(["k"], who("B"), ttl=10))
    locks.give(first)
    second = taken(locks.take(["k"], who("B"), ttl=10))
    assert [first.keys[0].fence, second.keys[0].fence] == [future + 1, future + 2]


def test_lock_10_a_killed_holder_frees_the_key_after_its_ttl(locks: Locks) -> None:
    def hold() -> None:
        locks.watch(taken(locks.take(["k"], who("child"), ttl=1)), lambda key: None)
        time.sleep(60)

    child = in_child(hold)
    eventually(lambda: look("k", locks).hold)
    time.sleep(1.2)
    assert isinstance(locks.take(["k"], who("A"), ttl=1, join=False), Refused)  # its keeper renews
    kill(child)
    answer = locks.wait(["k"], who("A", blocks=True), ttl=1, timeout=3)
    assert isinstance(answer, Taken)


def test_b021_expiry_counts_in_the_same_process_too(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=0.3))
    begun = time.monotonic()
    here = locks.wait(["k"], who("B", blocks=True), ttl=0.3, timeout=5)
    assert isinstance(here, Taken)
    assert 0.2 < time.monotonic() - begun < 0.6


def test_b024_two_executions_on_one_thread_are_two_owners(locks: Locks) -> None:
    first = taken(locks.take(["k"], who("A"), ttl=0.1))
    time.sleep(0.15)
    taken(locks.take(["k"], who("B"), ttl=10))
    locks.give(first)
    assert isinstance(locks.take(["k"], who("C"), ttl=10, join=False), Refused)


def test_several_keys_are_taken_all_or_none(locks: Locks) -> None:
    other = taken(locks.take(["b"], who("X"), ttl=10))
    answer = refused(locks.take(["c", "b", "a", "b"], who("A"), ttl=10))
    assert (answer.key, answer.busy) == ("b", ("b",))
    for free in ("a", "c"):
        probe = taken(locks.take([free], who("Y"), ttl=10))
        locks.give(probe)
    locks.give(other)
    held = taken(locks.take(["c", "b", "a", "b"], who("A"), ttl=10))
    assert held.names == ("a", "b", "c")
    assert locks.park(held, 5) == frozenset()
    assert {key.how for key in taken(locks.take(["a", "b", "c"], who("A", "new"), ttl=10)).keys} == {"parked"}


def test_everything_expires_and_nothing_is_left_when_idle(locks: Locks, reactor_prefix: str) -> None:
    client = locks.connection.client
    held = taken(locks.take(["k"], who("A"), ttl=10))
    refused(locks.take(["k"], who("B"), ttl=10))
    locks.give(held)
    names = client.keys(f"{reactor_prefix}:*")
    assert len(names) >= 4
    assert all(client.pttl(name) > 0 for name in names)
    locks.give(taken(locks.take(["k"], who("B"), ttl=10)))
    assert {name.decode().rpartition(":")[2] for name in client.keys(f"{reactor_prefix}:*")} == {"fence", "meta"}


def test_release_by_force_only_takes_what_was_shown(locks: Locks) -> None:
    first = taken(locks.take(["k"], who("A"), ttl=0.1))
    time.sleep(0.15)
    second = taken(locks.take(["k"], who("B"), ttl=10))
    refused(locks.take(["k"], who("C"), ttl=10))
    assert locks.release_by_force("k", fence=first.keys[0].fence) == (False, ())
    assert locks.renew(second) == frozenset()
    assert locks.release_by_force("k", fence=second.keys[0].fence, by="admin") == (True, ("C",))
    assert locks.release_by_force("k", fence=second.keys[0].fence, by="admin") == (True, ("C",))
    assert locks.renew(second) == {"k"}
    got = taken(locks.take(["k"], who("C"), ttl=10))
    assert (got.keys[0].how, got.keys[0].released_by) == ("granted", "admin")


def test_children_of_a_fork_contend_like_anybody(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("parent"), ttl=30))
    child = in_child(lambda: refused(locks.take(["k"], who("child"), ttl=10, join=False)))
    assert exit_code(child) == 0
    locks.give(held)
    child = in_child(lambda: locks.give(taken(locks.take(["k"], who("child"), ttl=10))))
    assert exit_code(child) == 0
    assert isinstance(locks.take(["k"], who("parent"), ttl=10), Taken)
