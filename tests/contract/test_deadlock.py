"""The walk over who waits for whom: rings are found, and nothing else is."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from reactor_coord.coordination import Deadlocks, Locks, Refused, Requester, Ring, Semaphores, Taken
from reactor_coord.coordination.holding import HIGHEST_PRIORITY
from tests.contract.people import eventually, refused, taken, who


@pytest.fixture
def deadlocks(locks: Locks) -> Deadlocks:
    return Deadlocks(locks.connection, locks.names)


@pytest.fixture
def semaphores(locks: Locks) -> Semaphores:
    return Semaphores(locks.connection, locks.names, keeper=locks.keeper)


def outer(name: str) -> Requester:
    """What an execution takes first, elsewhere than where it waits."""
    return who(name, step="outer")


def inner(name: str, *, blocks: bool = False) -> Requester:
    """The same execution at the step at which it waits."""
    return who(name, step="inner", blocks=blocks)


def cross(locks: Locks, *plans: tuple[str, str, str]) -> list[Taken]:
    """Each of (name, has, wants) takes the one and is refused the other."""
    held = [taken(locks.take([has], outer(name), ttl=30)) for name, has, _ in plans]
    for name, _, wants in plans:
        refused(locks.take([wants], inner(name), ttl=30))
    return held


def found(ring: Ring | None) -> Ring:
    assert ring is not None
    return ring


def test_two_that_have_what_the_other_wants(locks: Locks, deadlocks: Deadlocks) -> None:
    cross(locks, ("X", "A", "B"), ("Y", "B", "A"))
    for owner in "XY":
        ring = found(deadlocks.find(owner))
        assert set(ring.owners) == {"X", "Y"}
        assert ring.victim == "Y"
        text = " ".join(ring.describe())
        assert all(part in text for part in ("'A'", "'B'", "inner of execution X", "outer of execution Y"))
    assert found(deadlocks.find("X")).wait_of("Y").wake == "Y"


def test_three_in_a_ring(locks: Locks, deadlocks: Deadlocks) -> None:
    cross(locks, ("X", "A", "B"), ("Y", "B", "C"), ("Z", "C", "A"))
    for owner in "XYZ":
        ring = found(deadlocks.find(owner))
        assert (set(ring.owners), ring.victim, len(ring.links)) == ({"X", "Y", "Z"}, "Z", 3)


def test_a_bystander_is_no_victim_and_tells_the_one_that_is(locks: Locks, deadlocks: Deadlocks) -> None:
    cross(locks, ("X", "A", "B"), ("Y", "B", "A"))
    refused(locks.take(["A"], inner("Z"), ttl=30))  # the youngest of all
    ring = found(deadlocks.find("Z"))
    assert (set(ring.owners), ring.victim) == ({"X", "Y"}, "Y")


def test_a_chain_is_no_ring(locks: Locks, deadlocks: Deadlocks) -> None:
    taken(locks.take(["C"], outer("Z"), ttl=30))
    cross(locks, ("X", "A", "B"), ("Y", "B", "C"))
    assert [deadlocks.find(owner) for owner in "XYZ"] == [None, None, None]


def test_nobody_waits_who_was_let_in_or_has_left(locks: Locks, deadlocks: Deadlocks) -> None:
    client, names = locks.connection.client, locks.names
    first = taken(locks.take(["A"], outer("X"), ttl=30))
    refused(locks.take(["A"], inner("Y"), ttl=30))
    assert client.hlen(names.waits("Y")) == 1 and 0 < client.pttl(names.waits("Y")) <= 86_400_000
    locks.give(first)
    second = taken(locks.take(["A"], inner("Y"), ttl=30))
    assert not client.exists(names.waits("Y"))
    refused(locks.take(["A"], inner("X"), ttl=30))
    locks.leave(["A"], inner("X"))
    assert not client.exists(names.waits("X"))
    locks.give(second)


def test_a_parked_hold_binds_and_a_granted_one_does_not(locks: Locks, deadlocks: Deadlocks) -> None:
    first, _ = cross(locks, ("X", "A", "B"), ("Y", "B", "A"))
    locks.park(first, 30)
    assert found(deadlocks.find("Y")).victim == "Y"
    assert locks.release_by_force("A", fence=first.keys[0].fence)[0]  # Y has A now, as soon as it comes
    assert deadlocks.find("X") is None
    assert deadlocks.find("Y") is None


def test_what_goes_back_by_itself_binds_nobody(locks: Locks, semaphores: Semaphores, deadlocks: Deadlocks) -> None:
    """X took A and is refused a slot at the same step: it parks, and A goes back."""
    taken(semaphores.take("S", outer("Y"), limit=1, ttl=30))
    taken(locks.take(["A"], inner("X"), ttl=30))
    refused(semaphores.take("S", inner("X"), limit=1, ttl=30))
    refused(locks.take(["A"], inner("Y"), ttl=30))
    assert deadlocks.find("X") is None
    assert deadlocks.find("Y") is None


def test_of_a_semaphore_every_holder_must_be_stuck(locks: Locks, semaphores: Semaphores, deadlocks: Deadlocks) -> None:
    for name in "XYZ":
        taken(locks.take([name], outer(name), ttl=30))
    taken(semaphores.take("S", outer("Y"), limit=2, ttl=30))
    slot = taken(semaphores.take("S", outer("Z"), limit=2, ttl=30))
    refused(semaphores.take("S", inner("X"), limit=2, ttl=30))
    refused(locks.take(["X"], inner("Y"), ttl=30))
    assert [deadlocks.find(owner) for owner in "XYZ"] == [None, None, None]  # Z goes on, and gives its slot back
    refused(locks.take(["X"], inner("Z"), ttl=30))
    for owner in "XYZ":
        ring = found(deadlocks.find(owner))
        assert ring.victim == "Z" and set(ring.owners) == {"X", "Z"}
    semaphores.give(slot)
    assert deadlocks.find("X") is None


def test_of_several_keys_one_is_enough(locks: Locks, deadlocks: Deadlocks) -> None:
    taken(locks.take(["A"], outer("X"), ttl=30))
    taken(locks.take(["B"], outer("Y"), ttl=30))
    taken(locks.take(["C"], outer("Z"), ttl=30))
    refused(locks.take(["B", "C"], inner("X"), ttl=30))
    assert deadlocks.find("X") is None
    refused(locks.take(["A"], inner("Y"), ttl=30))
    assert set(found(deadlocks.find("X")).owners) == {"X", "Y"}


def test_a_rollback_is_not_the_victim(locks: Locks, deadlocks: Deadlocks) -> None:
    taken(locks.take(["A"], outer("X"), ttl=30))
    taken(locks.take(["B"], outer("Y"), ttl=30))
    refused(locks.take(["B"], inner("X"), ttl=30))
    rollback = threading.Thread(
        target=locks.wait,
        args=(["A"], who("Y", step="inner", blocks=True, priority=HIGHEST_PRIORITY)),
        kwargs={"ttl": 30, "timeout": 1},
    )
    rollback.start()
    eventually(lambda: deadlocks.find("X") is not None)
    assert found(deadlocks.find("X")).victim == "X"
    rollback.join()


def test_waits_that_are_in_no_line(locks: Locks, deadlocks: Deadlocks) -> None:
    from reactor_coord.coordination import Blocker, Wait

    taken(locks.take(["A"], outer("P"), ttl=30))
    refused(locks.take(["A"], inner("U"), ttl=30))
    asked: list[tuple[str, ...]] = []

    def results(owners: object) -> dict[str, list[Wait]]:
        asked.append(tuple(owners))  # type: ignore[arg-type]
        return {"P": [Wait("P", "result", "U", "1", (Blocker("U", ""),))]}

    assert deadlocks.find("U") is None
    ring = found(deadlocks.find("U", results))
    assert (set(ring.owners), ring.victim) == ({"P", "U"}, "U")
    assert asked == [("P",), ("P",)]  # not asked for those that stand in a line


def test_a_long_ring_is_found_and_a_longer_one_bounded(locks: Locks, deadlocks: Deadlocks) -> None:
    names = [f"x{number:02}" for number in range(30)]
    cross(locks, *((name, name, names[(at + 1) % 30]) for at, name in enumerate(names)))
    begun = time.monotonic()
    assert len(found(deadlocks.find("x07")).links) == 30
    assert time.monotonic() - begun < 1
    more = [f"y{number:02}" for number in range(60)]
    cross(locks, *((name, name, more[(at + 1) % 60]) for at, name in enumerate(more)))
    assert deadlocks.find("y07") is None


def test_a_blocking_victim_is_told_in_its_inbox(locks: Locks, deadlocks: Deadlocks) -> None:
    """The one that closes the ring is not the youngest: the youngest sleeps, and is woken to look for itself."""
    taken(locks.take(["A"], outer("X"), ttl=30))
    taken(locks.take(["B"], outer("Y"), ttl=30))
    looked: list[Ring] = []

    class Victim(Exception):
        pass

    def look(name: str) -> Callable[[Refused], None]:
        def found_out(answer: Refused) -> None:
            ring = deadlocks.find(name)
            if ring is None:
                return
            looked.append(ring)
            if ring.victim == name:
                raise Victim
            deadlocks.tell(ring.wait_of(ring.victim))

        return found_out

    ended: list[str] = []

    def sleeper() -> None:
        try:
            locks.wait(["A"], inner("Y", blocks=True), ttl=30, timeout=20, on_refused=look("Y"))
        except Victim:
            ended.append("Y")

    sleeping = threading.Thread(target=sleeper)
    sleeping.start()
    eventually(lambda: locks.connection.client.exists(locks.names.waits("Y")))
    begun = time.monotonic()
    answer = locks.wait(["B"], inner("X", blocks=True), ttl=30, timeout=0.5, on_refused=look("X"))
    sleeping.join(2)
    assert ended == ["Y"]
    assert time.monotonic() - begun < 2
    refused(answer)  # nobody gave B back in this test
    eventually(lambda: not locks.connection.client.exists(locks.names.waits("Y")))


@pytest.mark.parametrize("seed", range(6))
def test_random_plans_all_end_and_nobody_fails_without_a_ring(locks: Locks, deadlocks: Deadlocks, seed: int) -> None:
    """Threads, each taking keys one inside the other in an order of its own, some with the whole set in one order."""
    dice = random.Random(seed)
    in_order = seed % 3 == 0
    plans = {f"p{number}": dice.sample("ABCD", dice.choice((1, 2, 3))) for number in range(8)}
    if in_order:
        plans = {name: sorted(keys) for name, keys in plans.items()}
    failed: dict[str, Ring] = {}
    errors: list[BaseException] = []

    class Victim(Exception):
        pass

    def run(name: str, keys: list[str]) -> None:
        held: list[Taken] = []

        def look(answer: Refused) -> None:
            ring = deadlocks.find(name) if held else None
            if ring is None:
                return
            if ring.victim == name:
                failed[name] = ring
                raise Victim
            deadlocks.tell(ring.wait_of(ring.victim))

        try:
            for key in keys:
                me = who(name, step=key, blocks=True)
                held.append(taken(locks.wait([key], me, ttl=30, timeout=30, on_refused=look)))
                time.sleep(dice.random() / 200)
        except Victim:
            pass
        except BaseException as error:
            errors.append(error)
        finally:
            for each in reversed(held):
                locks.give(each)

    begun = time.monotonic()
    threads = [threading.Thread(target=run, args=plan) for plan in plans.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert time.monotonic() - begun < 10
    for name, ring in failed.items():
        assert name in ring.owners and len(ring.links) > 1
        for link in ring.links:  # it had the one and wanted the other, in that order
            plan = plans[link.blocker.owner]
            assert link.wait.key in plan and link.wait.key in plans[link.wait.owner]
    if in_order:
        assert not failed
