"""Executions that park, in any interleaving, others moving between the reads of a walk: nobody fails without a ring, all end.

The plans are those of a reactor's lock with a step's inside it: keys one inside the other, each in an order of its own. An
execution moves when it has a message: taking, walking, parking, ending. While one walks, others move before each of its reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reactor_coord.coordination import Deadlocks, Locks, Ring, Semaphores, Taken
from reactor_coord.coordination.deadlock import Wait
from tests.contract.people import who

RUNS = itertools.count()
NESTED_AT_MOST = 3


class Walk(Deadlocks):
    """The walk, with a gap before each of its reads."""

    world: World

    def _waits_in_lines(self, owners: Sequence[str]) -> dict[str, list[Wait]]:
        self.world.meanwhile()
        return super()._waits_in_lines(owners)


class World:
    """A handful of executions over the same keys. A key in capitals is a lock, any other a semaphore of two."""

    def __init__(self, locks: Locks, plans: Sequence[Sequence[str]], dice: Random) -> None:
        self.locks, self.dice = locks, dice
        self.semaphores = Semaphores(locks.connection, locks.names, keeper=locks.keeper)
        self.walk = Walk(locks.connection, locks.names)
        self.walk.world = self
        run = next(RUNS)
        self.names = [f"{run:06}-{number}" for number in range(len(plans))]
        self.plans = {name: [f"{key}{run}" for key in plan] for name, plan in zip(self.names, plans, strict=True)}
        self.has: dict[str, list[Taken]] = {name: [] for name in self.names}
        self.ready = list(self.names)
        self.at_it: set[str] = set()
        self.waits: dict[str, str] = {}
        self.done: set[str] = set()
        self.failed: dict[str, Ring] = {}
        self.depth = 0

    def run(self) -> None:
        moves = 0
        while self.ready:
            moves += 1
            assert moves < 2000, "they go round and round"
            self.move(self._any_ready())

    def meanwhile(self) -> None:
        """While somebody walks, some of the others move."""
        if self.depth >= NESTED_AT_MOST:
            return
        self.depth += 1
        while self.ready and self.dice.random() < 0.5:
            free = [name for name in self.ready if name not in self.at_it]
            if not free:
                break
            self.move(self.dice.choice(free))
        self.depth -= 1

    def _any_ready(self) -> str:
        return self.dice.choice(self.ready)

    def move(self, name: str) -> None:
        self.ready.remove(name)
        if name in self.done or name in self.failed:
            return  # a message too many
        self.at_it.add(name)
        try:
            self._go_on(name)
        finally:
            self.at_it.discard(name)

    def _go_on(self, name: str) -> None:
        plan, has = self.plans[name], self.has[name]
        if len(has) == len(plan):
            self.done.add(name)
            return self._give_all(name)
        key = plan[len(has)]
        answer = self._take(name, key)
        if isinstance(answer, Taken):
            has.append(answer)
            self.waits.pop(name, None)
            self.ready.append(name)
            return None
        self.waits[name] = key
        self.ready += answer.wakes
        ring = self.walk.find(name) if has else None
        if ring is None:
            return None
        if ring.victim != name:
            self.ready.append(ring.wait_of(ring.victim).wake)
            return None
        self._is_true(name, ring)
        self.failed[name] = ring
        del self.waits[name]
        self.ready += self._of(key).leave([key], who(name, step=key))
        return self._give_all(name)

    def _take(self, name: str, key: str):  # type: ignore[no-untyped-def]
        me = who(name, step=key)
        if key[0].isupper():
            return self.locks.take([key], me, ttl=60)
        return self.semaphores.take(key, me, limit=2, ttl=60)

    def _of(self, key: str) -> Locks | Semaphores:
        return self.locks if key[0].isupper() else self.semaphores

    def _give_all(self, name: str) -> None:
        for taken in reversed(self.has[name]):
            self.ready += self._of(taken.names[0]).give(taken)
        self.has[name] = []

    def _is_true(self, name: str, ring: Ring) -> None:
        """By the world's own books, every link stands now."""
        assert name in ring.owners
        for link in ring.links:
            assert self.waits.get(link.wait.owner) == link.wait.key, (ring, self.waits)
            names = [key for taken in self.has[link.blocker.owner] for key in taken.names]
            assert link.wait.key in names, (ring, self.has)
        assert set(ring.owners) <= self._stuck(), (ring, self.waits, self.has)

    def _stuck(self) -> set[str]:
        """By the world's own books, those who can never go on by themselves."""
        stuck = set(self.waits)
        while True:
            free = {name for name in stuck if not self._is_blocked(self.waits[name], stuck)}
            if not free:
                return stuck
            stuck -= free

    def _is_blocked(self, key: str, stuck: set[str]) -> bool:
        holders = [name for name, has in self.has.items() if any(key in taken.names for taken in has)]
        return len(holders) == (1 if key[0].isupper() else 2) and stuck.issuperset(holders)

    def has_opposite_orders(self) -> bool:
        """Whether any two plans have two keys in opposite orders, without which there can be no ring."""
        before = {pair for plan in self.plans.values() for pair in itertools.combinations(plan, 2)}
        reach = set(before)
        while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
            reach |= more
        return any((b, a) in reach for a, b in reach)


def check(locks: Locks, plans: Sequence[Sequence[str]], dice: Random) -> World:
    world = World(locks, plans, dice)
    world.run()
    assert world.done | set(world.failed) == set(world.names), (world.waits, world.failed)
    assert not world.failed or world.has_opposite_orders()
    assert not any(locks.connection.client.exists(locks.names.waits(name)) for name in world.names)
    return world


SHARED = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@SHARED
@given(
    plans=st.lists(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=3, unique=True), min_size=2, max_size=5),
    dice=st.randoms(use_true_random=False),
)
def test_with_locks(locks: Locks, plans: list[list[str]], dice: Random) -> None:
    check(locks, plans, dice)


@SHARED
@given(
    plans=st.lists(st.lists(st.sampled_from("ABst"), min_size=1, max_size=3, unique=True), min_size=3, max_size=6),
    dice=st.randoms(use_true_random=False),
)
def test_with_semaphores_between_them(locks: Locks, plans: list[list[str]], dice: Random) -> None:
    check(locks, plans, dice)


@pytest.mark.parametrize("plans", [["AB", "BA"], ["AB", "BC", "CA"], ["AB", "BA", "A"], ["AB", "AB", "B"]])
def test_the_models_own_plans(locks: Locks, plans: list[str]) -> None:
    failed = [len(check(locks, plans, Random(seed)).failed) for seed in range(40)]
    assert max(failed) <= 1
    assert bool(sum(failed)) == (plans != ["AB", "AB", "B"])
