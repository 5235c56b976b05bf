"""The line: first come first served, hand-off on release, grants that lapse, keys passed on, and the net under it all."""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

from reactor_coord.coordination import Locks, Refused, Taken
from reactor_coord.coordination.inspect import line, look
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, exit_code, in_child, kill, refused, taken, who


def places(locks: Locks, key: str = "k") -> list[str]:
    return [waiter.owner for waiter in line(key, locks)]


def test_a_release_grants_the_key_in_the_order_of_arrival(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("0"), ttl=10))
    for number in range(1, 6):
        assert refused(locks.take(["k"], who(str(number)), ttl=10)).place == number
    for number in range(1, 6):
        assert locks.give(held) == (str(number),)
        assert isinstance(locks.take(["k"], who("late"), ttl=10, join=False), Refused)
        held = taken(locks.take(["k"], who(str(number), "new claim"), ttl=10))
        assert held.keys[0].how == "granted"
        assert held.keys[0].released_by == str(number - 1)
        assert held.keys[0].granted_at is not None
    assert locks.give(held) == ()


def test_a_grant_is_reserved_and_its_fence_is_kept(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    refused(locks.take(["k"], who("B"), ttl=10))
    locks.give(held)
    view = look("k", locks).hold
    assert view is not None
    assert (view.state, view.owner, view.claim, view.execution) == ("granted", "B", "", "B")
    got = taken(locks.take(["k"], who("B"), ttl=10, token="t"))
    again = taken(locks.take(["k"], who("B"), ttl=10, token="t"))
    assert got.keys == again.keys
    assert got.keys[0].fence == view.fence > held.keys[0].fence


def test_priority_goes_first_and_arrival_decides_among_equals(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=10))
    for name, priority in (("p0", 0), ("p5", 5), ("q0", 0), ("q5", 5), ("low", -3)):
        locks.take(["k"], who(name, priority=priority), ttl=10)
    assert places(locks) == ["p5", "q5", "p0", "q0", "low"]


def test_coming_again_keeps_the_ticket(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=10))
    for name in ("B", "C", "B"):
        locks.take(["k"], who(name), ttl=10)
    assert refused(locks.take(["k"], who("B", "another claim"), ttl=10)).place == 1
    assert places(locks) == ["B", "C"]


def test_a_grant_lapses_its_grace_doubles_and_the_ticket_is_kept(make_locks: MakeLocks) -> None:
    locks = make_locks(grace=0.2)
    held = taken(locks.take(["k"], who("A"), ttl=30))
    refused(locks.take(["k"], who("B"), ttl=30))
    for lapses in range(3):
        refused(locks.take(["k"], who("C"), ttl=30))
        assert locks.give(held) == ("B",)
        view = look("k", locks).hold
        assert view is not None
        assert 0.2 * 2**lapses - 0.1 < view.remaining <= 0.2 * 2**lapses
        time.sleep(0.2 * 2**lapses + 0.02)
        held = taken(locks.take(["k"], who("X"), ttl=30))  # free while others wait: who is here takes it
        assert held.keys[0].how == "free"
        assert refused(locks.take(["k"], who("B"), ttl=30)).place == 1  # late, but with its old ticket
    assert locks.give(held) == ("B",)
    locks.give(taken(locks.take(["k"], who("B"), ttl=30)))
    locks.leave(["k"], who("C"))
    held = taken(locks.take(["k"], who("A"), ttl=30))
    refused(locks.take(["k"], who("B"), ttl=30))
    locks.give(held)
    view = look("k", locks).hold
    assert view is not None
    assert view.remaining <= 0.2  # it came in time, so the grace is the short one again


def test_leave_takes_one_out_of_the_line(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    for name in ("B", "C"):
        locks.take(["k"], who(name), ttl=10)
    assert locks.leave(["k"], who("B")) == ()
    assert places(locks) == ["C"]
    assert locks.give(held) == ("C",)


def test_leave_passes_a_grant_on(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    for name in ("B", "C"):
        locks.take(["k"], who(name), ttl=10)
    locks.give(held)
    assert locks.leave(["k"], who("B")) == ("C",)
    got = taken(locks.take(["k"], who("C"), ttl=10))
    assert (got.keys[0].how, got.keys[0].released_by) == ("granted", "B")


def test_leave_touches_nothing_that_is_held_and_drops_what_is_parked_when_asked(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    refused(locks.take(["k"], who("B"), ttl=10))
    assert locks.leave(["k"], who("A"), parked=True) == ()
    assert locks.renew(held) == frozenset()
    locks.park(held, 30)
    assert locks.leave(["k"], who("A")) == ()
    assert locks.leave(["k"], who("A"), parked=True) == ("B",)


def test_the_last_one_to_leave_frees_the_key(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=10))
    locks.take(["k"], who("B"), ttl=10)
    locks.give(held)
    assert locks.leave(["k"], who("B")) == ()
    assert taken(locks.take(["k"], who("C"), ttl=10)).keys[0].how == "free"


def test_tend_grants_what_lapsed_with_nobody_to_release_it(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=0.1))
    taken(locks.take(["other"], who("A"), ttl=30))
    refused(locks.take(["k"], who("B"), ttl=10))
    assert locks.tend() == ()
    time.sleep(0.12)
    assert locks.tend() == ("B",)
    assert locks.tend() == ()
    assert taken(locks.take(["k"], who("B"), ttl=10)).keys[0].how == "granted"


def test_tend_goes_on_to_the_next_when_a_grant_lapses_too(make_locks: MakeLocks) -> None:
    locks = make_locks(grace=0.05)
    taken(locks.take(["k"], who("A"), ttl=0.05))
    for name in ("B", "C"):
        locks.take(["k"], who(name), ttl=10)
    got: list[str] = []
    eventually(lambda: got.extend(locks.tend()) or "C" in got, within=2)  # type: ignore[func-returns-value]
    assert got == ["B", "C"]
    time.sleep(0.06)
    assert locks.tend() == ()
    assert locks.connection.client.zcard(locks.names.index("lock")) == 0


def test_tend_leaves_a_renewed_hold_alone(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=0.2))
    refused(locks.take(["k"], who("B"), ttl=10))
    for _ in range(4):
        time.sleep(0.1)
        locks.renew(held)
        assert locks.tend() == ()
    assert locks.renew(held) == frozenset()


# ---- several keys


def test_a_grant_of_one_key_is_passed_on_while_another_is_busy(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    b = taken(locks.take(["b"], who("Y"), ttl=30))
    refused(locks.take(["a", "b"], who("both"), ttl=30))
    refused(locks.take(["a"], who("one"), ttl=30))
    assert locks.give(a) == ("both",)
    answer = refused(locks.take(["a", "b"], who("both"), ttl=30))
    assert (answer.key, answer.busy, answer.wakes) == ("b", ("b",), ("one",))
    assert places(locks, "a") == ["both"]
    held = taken(locks.take(["a"], who("one"), ttl=30))
    assert locks.give(held) == ("both",)  # a release: asked again
    assert refused(locks.take(["a", "b"], who("both"), ttl=30)).wakes == ()
    assert look("a", locks).hold is None
    assert locks.give(b) == ("both",)
    assert taken(locks.take(["a", "b"], who("both"), ttl=30)).names == ("a", "b")


def test_two_who_both_pass_end_with_a_free_key_and_lose_no_wake(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    b = taken(locks.take(["b"], who("Y"), ttl=30))
    for name in ("V", "W"):
        refused(locks.take(["a", "b"], who(name), ttl=30))
    assert locks.give(a) == ("V",)
    assert refused(locks.take(["a", "b"], who("V"), ttl=30)).wakes == ("W",)
    assert refused(locks.take(["a", "b"], who("W"), ttl=30)).wakes == ()
    assert look("a", locks).hold is None
    assert locks.tend() == ()
    assert locks.give(b) == ("V",)
    held = taken(locks.take(["a", "b"], who("V"), ttl=30))
    assert locks.give(held) == ("W", "W")
    assert isinstance(locks.take(["a", "b"], who("W"), ttl=30), Taken)


def test_who_passed_is_asked_again_after_being_refused_by_that_very_key(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    b = taken(locks.take(["b"], who("Y"), ttl=30))
    refused(locks.take(["a", "b"], who("V"), ttl=30))
    locks.give(a)
    refused(locks.take(["a", "b"], who("V"), ttl=30))  # passes a on; nobody wants it
    a = taken(locks.take(["a"], who("Z"), ttl=0.1))
    assert locks.give(b) == ("V",)
    assert refused(locks.take(["a", "b"], who("V"), ttl=30)).busy == ("a",)
    time.sleep(0.12)  # Z dies
    assert locks.tend() == ("V",)
    assert isinstance(locks.take(["a", "b"], who("V"), ttl=30), Taken)
    assert a.names == ("a",)


def test_passing_on_is_no_lapse(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    taken(locks.take(["b"], who("Y"), ttl=30))
    for _ in range(3):
        refused(locks.take(["a", "b"], who("V"), ttl=30))
        locks.give(a)
        refused(locks.take(["a", "b"], who("V"), ttl=30))
        assert [waiter.lapses for waiter in line("a", locks)] == [0]
        a = taken(locks.take(["a"], who("X"), ttl=30))


def test_a_pass_sent_twice_answers_the_same_wake(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    taken(locks.take(["b"], who("Y"), ttl=30))
    refused(locks.take(["a", "b"], who("V"), ttl=30))
    refused(locks.take(["a"], who("W"), ttl=30))
    locks.give(a)
    assert refused(locks.take(["a", "b"], who("V"), ttl=30, token="t")).wakes == ("W",)
    assert refused(locks.take(["a", "b"], who("V"), ttl=30, token="t")).wakes == ("W",)


@pytest.mark.parametrize("keys", [("x", "y"), ("x", "x")])
def test_lock_14_opposite_orders_race_and_all_finish(locks: Locks, keys: tuple[str, str]) -> None:
    inside: list[str] = []
    wrong: list[list[str]] = []

    def body(name: str, order: list[str]) -> None:
        for _ in range(100):
            held = locks.wait(order, who(name, blocks=True), ttl=10, timeout=30)
            assert isinstance(held, Taken), held
            inside.append(name)
            if len(inside) > 1:
                wrong.append(list(inside))
            inside.remove(name)
            locks.give(held)

    threads = [
        threading.Thread(target=body, args=("A", list(keys))),
        threading.Thread(target=body, args=("B", list(reversed(keys)))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


class Pool:
    """A worker pool in small. Executions are woken by what operations answer, so that a lost wake is a hang."""

    def __init__(self, locks: Locks, seed: int) -> None:
        self.locks = locks
        self.dice = random.Random(seed)
        self.wants = {f"e{number}": self.dice.sample(["a", "b", "c"], self.dice.randint(1, 3)) for number in range(40)}
        self.ready = list(self.wants)
        self.parked: set[str] = set()
        self.held: dict[str, Taken] = {}
        self.over: set[str] = set()

    def arrive(self) -> None:
        name = self.ready.pop(self.dice.randrange(len(self.ready)))
        if name in self.over or name in self.held:
            return  # a wake delivered twice
        answer = self.locks.take(self.wants[name], who(name), ttl=60)
        if isinstance(answer, Taken):
            self.held[name] = answer
            self.parked.discard(name)
        else:
            self.parked.add(name)
            self.ready += answer.wakes

    def finish(self) -> None:
        name = self.dice.choice(sorted(self.held))
        self.ready += self.locks.give(self.held.pop(name))
        self.over.add(name)

    def cancel(self) -> None:
        if self.parked:
            name = self.dice.choice(sorted(self.parked))
            self.parked.discard(name)
            self.over.add(name)
            self.ready += self.locks.leave(self.wants[name], who(name))

    def run(self, *, cancels: bool = False) -> None:
        while self.ready or self.held:
            throw = self.dice.random()
            if cancels and throw > 0.9:
                self.cancel()
            elif self.held and (not self.ready or throw < 0.4):
                self.finish()
            elif self.ready:
                self.arrive()
            busy = [key for taken_ in self.held.values() for key in taken_.names]
            assert len(busy) == len(set(busy))


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_b030_parked_waiters_over_overlapping_keys_all_get_through(locks: Locks, seed: int, cancels: bool) -> None:
    pool = Pool(locks, seed)
    pool.run(cancels=cancels)
    assert pool.over == set(pool.wants)
    assert all(look(key, locks).hold is None for key in "abc")
    assert all(places(locks, key) == [] for key in "abc")


@pytest.mark.parametrize("seed", range(8))
def test_b038_with_wakes_lost_and_holders_dead_the_net_gets_all_through(locks: Locks, seed: int) -> None:
    """Beside the pool a sweep: it tends lapsed keys and sends what is due again, as often as it takes."""
    pool = Pool(locks, seed)
    client = locks.connection.client
    for _ in range(200):
        while pool.ready or pool.held:
            throw = pool.dice.random()
            if throw < 0.1 and pool.held:  # a holder dies: its lease ends, its execution is taken up again
                name = pool.dice.choice(sorted(pool.held))
                for key in pool.held.pop(name).names:
                    client.delete(locks.names.resource("lock", key)[0])
                    client.zadd(locks.names.index("lock"), {key: 1})
                pool.parked.add(name)
            elif throw < 0.2 and pool.ready:  # a message is lost
                pool.ready.pop()
            elif pool.held and (not pool.ready or throw < 0.5):
                pool.finish()
            elif pool.ready:
                pool.arrive()
        if pool.over == set(pool.wants):
            return
        for key in "abc":  # grants whose message was lost lapse
            view = look(key, locks).hold
            if view and view.state == "granted":
                client.delete(locks.names.resource("lock", key)[0])
                client.zadd(locks.names.index("lock"), {key: 1})
        pool.ready += locks.tend()
        pool.ready += sorted(set(pool.wants) - pool.over - set(pool.held))[:3]
    pytest.fail(f"never done: {set(pool.wants) - pool.over}")


# ---- blocking


def test_a_blocking_waiter_is_woken_by_the_release(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    got: list[tuple[Taken | Refused, float]] = []

    def wait() -> None:
        got.append((locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=10), time.monotonic()))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: places(locks) == ["B"])
    released = time.monotonic()
    assert locks.give(held) == ()  # pushed to by the script: nobody for us to wake
    thread.join(5)
    assert taken(got[0][0]).keys[0].how == "granted"
    assert got[0][1] - released < 0.1


def test_a_blocking_waiter_leaves_on_time(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    begun = time.monotonic()
    answer = refused(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=0.3))
    assert 0.29 < time.monotonic() - begun < 0.5
    assert answer.place == 0
    assert answer.holder is not None
    assert places(locks) == []
    assert locks.give(held) == ()
    assert look("k", locks).hold is None


def test_waiting_no_time_is_a_try(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    assert refused(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=0)).waiting == 0
    locks.give(held)
    assert isinstance(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=0), Taken)


def test_blocking_and_parked_waiters_stand_in_one_line(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    refused(locks.take(["k"], who("parked"), ttl=30))
    got: list[Taken | Refused] = []
    thread = threading.Thread(
        target=lambda: got.append(locks.wait(["k"], who("blocking", blocks=True), ttl=30, timeout=10))
    )
    thread.start()
    eventually(lambda: places(locks) == ["parked", "blocking"])
    assert [waiter.is_blocking for waiter in line("k", locks)] == [False, True]
    assert locks.give(held) == ("parked",)
    held = taken(locks.take(["k"], who("parked"), ttl=30))
    assert locks.give(held) == ()
    thread.join(5)
    assert isinstance(got[0], Taken)


def test_a_blocking_waiter_looks_when_the_lease_ends_without_polling(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=1))
    before = locks.connection.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    begun = time.monotonic()
    assert isinstance(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=10), Taken)
    assert 0.9 < time.monotonic() - begun < 1.2
    after = locks.connection.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert after - before <= 4


def test_a_wake_for_others_that_comes_up_while_waiting_is_delivered(locks: Locks, woken: list[str]) -> None:
    a = taken(locks.take(["a"], who("X"), ttl=30))
    b = taken(locks.take(["b"], who("Y"), ttl=30))
    got: list[Taken | Refused] = []
    thread = threading.Thread(
        target=lambda: got.append(locks.wait(["a", "b"], who("both", blocks=True), ttl=30, timeout=10))
    )
    thread.start()
    eventually(lambda: places(locks, "b") == ["both"])
    refused(locks.take(["a"], who("one"), ttl=30))
    locks.give(a)
    eventually(lambda: woken == ["one"])
    locks.give(taken(locks.take(["a"], who("one"), ttl=30)))
    locks.give(b)
    thread.join(5)
    assert isinstance(got[0], Taken)


def test_b033_a_dead_blocking_waiter_at_the_head_holds_nobody_up(make_locks: MakeLocks) -> None:
    locks = make_locks(grace=0.3)
    held = taken(locks.take(["k"], who("A"), ttl=30))
    child = in_child(lambda: locks.wait(["k"], who("dead", blocks=True), ttl=30, timeout=60))
    eventually(lambda: places(locks) == ["dead"])
    kill(child)
    got: list[float] = []

    def wait() -> None:
        taken(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=20))
        got.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: places(locks) == ["dead", "B"])
    released = time.monotonic()
    locks.give(held)
    time.sleep(0.35)
    locks.tend()
    thread.join(10)
    assert got[0] - released < 1


def test_a_dead_inbox_past_its_deadline_is_dropped_when_met(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    child = in_child(lambda: locks.wait(["k"], who("dead", blocks=True), ttl=30, timeout=20))
    eventually(lambda: places(locks) == ["dead"])
    kill(child)
    client, waiters = locks.connection.client, locks.names.resource("lock", "k")[2]
    for name, entry in client.hgetall(waiters).items():
        client.hset(waiters, name, json.dumps({**json.loads(entry), "deadline": 1}))  # as if it had passed
    refused(locks.take(["k"], who("B"), ttl=30))
    assert locks.give(held) == ("B",)


def test_processes_hand_a_key_from_one_to_the_next(locks: Locks) -> None:
    client = locks.connection.client
    log = f"{locks.names.prefix}:log"

    def work(name: str) -> None:
        for _ in range(25):
            held = taken(locks.wait(["k"], who(name, blocks=True), ttl=10, timeout=30))
            client.rpush(log, f"+{name}")
            client.rpush(log, f"-{name}")
            locks.give(held)

    children = [in_child(lambda name=name: work(name)) for name in "ABC"]  # type: ignore[misc]
    assert [exit_code(child) for child in children] == [0, 0, 0]
    entries = [entry.decode() for entry in client.lrange(log, 0, -1)]
    assert len(entries) == 150
    assert all(entries[at][1] == entries[at + 1][1] for at in range(0, 150, 2))


def test_b040_releases_at_the_instant_of_joining_lose_no_wake(locks: Locks) -> None:
    """Two who take turns with bodies of no length: a wake that fell between refusal and sleep would cost the net's 5 s."""

    def work(name: str) -> None:
        for _ in range(300):
            held = taken(locks.wait(["k"], who(name, blocks=True), ttl=30, timeout=4))
            locks.give(held)

    threads = [threading.Thread(target=work, args=(name,)) for name in "AB"]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - begun < 10


def test_a_grant_in_the_last_moment_is_not_lost(locks: Locks) -> None:
    dice = random.Random(3)
    for round_ in range(40):
        held = taken(locks.take(["k"], who("A"), ttl=30))
        got: list[Taken | Refused] = []
        thread = threading.Thread(
            target=lambda got=got: got.append(locks.wait(["k"], who("B", blocks=True), ttl=30, timeout=0.03))
        )
        thread.start()
        time.sleep(0.028 + dice.random() * 0.004)
        locks.give(held)
        thread.join(5)
        if isinstance(got[0], Taken):
            locks.give(got[0])
        assert look("k", locks).hold is None, round_
