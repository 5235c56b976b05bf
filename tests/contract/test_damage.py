"""A key under one of our names that is not what was written there: told by its name with a remedy, or made anew if it can be.

Every part of every primitive is put out of shape in every way, and every operation is then asked: each works, or says which
key it is. None ends with an error of Python, or as a Redis that cannot be reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from redis import exceptions

from reactor_coord.coordination import Deadlocks, Locks, OrderedLines, RateLimits, Semaphores, Turn, Window, inspect
from reactor_coord.coordination.damage import is_damage
from reactor_coord.coordination.keeper import Keeper
from reactor_coord.coordination.keys import Names, type_of
from reactor_coord.coordination.leader import Leadership
from reactor_coord.coordination.period import Periods
from reactor_coord.errors import CoordinationDamaged
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, refused, taken, who

KEY = "k {odd}"
WINDOWS = [Window(2, 60)]


class All:
    """Every primitive over one connection, with something of each in Redis."""

    def __init__(self, locks: Locks) -> None:
        self.locks, connection, names = locks, locks.connection, locks.names
        self.semaphores = Semaphores(connection, names, keeper=locks.keeper)
        self.limits = RateLimits(connection, names, grace=2)
        self.periods = Periods(connection, names, Keeper())
        self.lines = OrderedLines(connection, names, Keeper())
        self.deadlocks = Deadlocks(connection, names)
        self.leadership = Leadership(connection, names)
        self.client = connection.client

    def fill(self) -> None:
        """A holder and a waiter, a start and a plan, a mark, two positions, a leader."""
        self.held = taken(self.locks.take([KEY], who("A"), ttl=60))
        refused(self.locks.take([KEY], who("B"), ttl=60))
        self.slot = taken(self.semaphores.take(KEY, who("A"), limit=1, ttl=60))
        refused(self.semaphores.take(KEY, who("B"), limit=1, ttl=60))
        for name in ("A", "B", "C"):
            self.limits.charge(KEY, name, name, WINDOWS, "fixed_window", plans=True)
            self.limits.charge(f"sliding {KEY}", name, name, WINDOWS, "sliding_window", plans=True)
        self.bucket, _ = self.periods.look(KEY, "year", "UTC")
        self.periods.mark(KEY, self.bucket, "A/step")
        found = self.enter("A")
        assert isinstance(found, Turn)
        self.turn = found
        self.enter("B")
        self.leadership.claim("A", 60)

    def enter(self, name: str) -> Any:
        return self.lines.enter(KEY, name, who(name), poison_timeout=60, ttl=600)


Operation = Callable[[All], Any]

OPERATIONS: dict[str, dict[str, Operation]] = {
    "lock": {
        "take": lambda it: it.locks.take([KEY], who("C"), ttl=60),
        "re-enter": lambda it: it.locks.take([KEY], who("A"), ttl=60),
        "take two": lambda it: it.locks.take([KEY, "other"], who("C"), ttl=60),
        "wait": lambda it: it.locks.wait([KEY], who("C", blocks=True), ttl=60, timeout=0.05),
        "renew": lambda it: it.locks.renew(it.held),
        "park": lambda it: it.locks.park(it.held, 5),
        "give": lambda it: it.locks.give(it.held),
        "leave": lambda it: it.locks.leave([KEY], who("B")),
        "tend": lambda it: it.locks.tend(),
        "force": lambda it: it.locks.release_by_force(KEY, fence=it.held.keys[0].fence),
        "look": lambda it: inspect.look(KEY, it.locks),
        "line": lambda it: inspect.line(KEY, it.locks),
        "survey": lambda it: inspect.lines(inspect.survey(it.locks)),
        "deadlock": lambda it: it.deadlocks.find("B"),
    },
    "semaphore": {
        "take": lambda it: it.semaphores.take(KEY, who("C"), limit=1, ttl=60),
        "re-enter": lambda it: it.semaphores.take(KEY, who("A"), limit=1, ttl=60),
        "raise": lambda it: it.semaphores.take(KEY, who("C"), limit=3, ttl=60),
        "renew": lambda it: it.semaphores.renew(it.slot),
        "park": lambda it: it.semaphores.park(it.slot, 5),
        "give": lambda it: it.semaphores.give(it.slot),
        "leave": lambda it: it.semaphores.leave([KEY], who("B")),
        "tend": lambda it: it.semaphores.tend(),
        "force": lambda it: it.semaphores.release_by_force(KEY, fence=it.slot.keys[0].fence),
        "look": lambda it: inspect.look(KEY, it.semaphores),
        "line": lambda it: inspect.line(KEY, it.semaphores),
        "survey": lambda it: inspect.survey(it.semaphores),
        "deadlock": lambda it: it.deadlocks.find("B"),
    },
    "rate_limit": {
        "look": lambda it: it.limits.look(KEY, "D", WINDOWS, "fixed_window", plans=True),
        "charge": lambda it: it.limits.charge(KEY, "D", "D", WINDOWS, "fixed_window", plans=True),
        "slide": lambda it: it.limits.charge(f"sliding {KEY}", "D", "D", WINDOWS, "sliding_window", plans=True),
        "cancel": lambda it: it.limits.cancel(KEY, "C"),
        "view": lambda it: it.limits.view(KEY),
        "survey": lambda it: it.limits.survey(),
        "look at": lambda it: it.limits.look_at(KEY),
        "forget": lambda it: it.limits.forget(KEY, "C", 0.0),
    },
    "period": {
        "look": lambda it: it.periods.look(KEY, "year", "UTC"),
        "looking": lambda it: it.periods.send(it.periods.looking(KEY, "year", "UTC")),  # type: ignore[arg-type]
        "mark": lambda it: it.periods.mark(KEY, it.bucket, "B/step"),
        "unmark": lambda it: it.periods.unmark(KEY, "A/step"),
        "free": lambda it: it.periods.free(KEY, it.bucket.name, "A"),
        "marks": lambda it: it.periods.marks(KEY),
        "survey": lambda it: it.periods.survey(),
    },
    "ordered_lock": {
        "enter": lambda it: it.enter("C"),
        "come again": lambda it: it.enter("A"),
        "renew": lambda it: it.lines.renew(it.turn.taken),
        "pause": lambda it: it.lines.pause(it.turn.taken, 1),
        "complete": lambda it: it.lines.complete(it.turn.taken, failed=True, chain_ttl=60),
        "leave": lambda it: it.lines.leave(KEY, "B", ttl=600),
        "skip": lambda it: it.lines.skip(KEY, 1),
        "reset": lambda it: it.lines.reset(KEY),
        "tend": lambda it: it.lines.tend(),
        "view": lambda it: it.lines.view(KEY),
        "survey": lambda it: it.lines.survey(),
    },
}

PARTS = {
    "lock": ("hold", "line", "waiters", "meta", "fence"),
    "semaphore": ("hold", "line", "waiters", "meta", "fence", "leases"),
    "rate_limit": ("state", "plans", "starts"),
    "period": ("marks",),
    "ordered_lock": ("state", "ids", "line"),
}


def to_string(client: Any, name: str) -> None:
    client.set(name, "somebody else's")


def to_list(client: Any, name: str) -> None:
    client.rpush(name, "somebody else's")


def to_hash(client: Any, name: str) -> None:
    client.hset(name, mapping={"somebody": "else's", "more": "{}", "1": "[]"})


def to_zset(client: Any, name: str) -> None:
    client.zadd(name, {"somebody else's": 1.5})


def to_set(client: Any, name: str) -> None:
    client.sadd(name, b"\xff\xfe")


SHAPES = {"string": to_string, "list": to_list, "hash": to_hash, "zset": to_zset, "set": to_set}


_numbers = itertools.count()


def fresh(locks: Locks) -> All:
    """All of it under a prefix of its own, with a keeper of its own: what an earlier one still gives back meets none of it."""
    names = Names(f"{locks.names.prefix}:{next(_numbers)}")
    found = All(Locks(locks.connection, names, handoff_grace=2.0))
    found.fill()
    return found


def damage_met(operation: Operation, everything: All) -> CoordinationDamaged | None:
    """What it says, if it says something; any other error is one too many."""
    try:
        operation(everything)
    except CoordinationDamaged as error:
        return error
    return None


@pytest.fixture
def everything(locks: Locks) -> All:
    return fresh(locks)


CASES = [(primitive, part, shape) for primitive, parts in PARTS.items() for part in parts for shape in SHAPES]


@pytest.mark.parametrize(("primitive", "part", "shape"), CASES)
def test_u05_another_value_under_a_name_of_ours_is_told_by_its_name(
    primitive: str, part: str, shape: str, locks: Locks
) -> None:
    is_told = False
    for name, operation in OPERATIONS[primitive].items():
        everything = fresh(locks)
        redis_key = f"{everything.locks.names.tag(primitive, KEY)}:{part}"
        everything.client.delete(redis_key)
        SHAPES[shape](everything.client, redis_key)
        error = damage_met(operation, everything)
        if error is not None:
            is_told = True
            assert (error.redis_key, error.primitive, error.key) == (redis_key, primitive, KEY), name
            assert redis_key in str(error)
            assert "delete the key (DEL)" in str(error)
    assert is_told or shape == type_of(f"{locks.names.tag(primitive, KEY)}:{part}".encode())


@pytest.mark.parametrize("field", ["owner", "claim", "state", "fence", "since", "count", "info"])
@pytest.mark.parametrize("name", ["take", "re-enter", "look", "survey", "deadlock"])
def test_u05_a_hold_that_lacks_a_field_is_told_by_its_name(field: str, name: str, everything: All) -> None:
    redis_key = f"{everything.locks.names.tag('lock', KEY)}:hold"
    everything.client.hdel(redis_key, field)
    error = damage_met(OPERATIONS["lock"][name], everything)
    if error is None:
        assert (name, field) in UNREAD
    else:
        assert (error.redis_key, error.key) == (redis_key, KEY)
        assert f"it lacks {field}" in str(error)


UNREAD = {
    *(("deadlock", field) for field in ("claim", "state", "since", "count", "owner", "fence", "info")),
    *(("re-enter", field) for field in ("info", "count", "state", "claim", "since")),
}
"""What an operation does not look at."""


def test_u05_a_hold_without_any_field_lets_nobody_in(everything: All) -> None:
    redis_key = f"{everything.locks.names.tag('lock', 'empty')}:hold"
    everything.client.hset(redis_key, "t:left", "free")
    for keys in (["empty"], ["a", "empty"]):
        with pytest.raises(CoordinationDamaged, match="it lacks claim, count"):
            everything.locks.take(keys, who("C"), ttl=60)
    assert inspect.look("a", everything.locks).hold is None
    everything.client.delete(redis_key)
    everything.locks.give(taken(everything.locks.take(["empty"], who("C"), ttl=60)))


@pytest.mark.parametrize("damage", ["no JSON", "{}", "[]", "[{}]", '{"ticket": "x"}', "\\xff"])
@pytest.mark.parametrize(
    ("primitive", "part"),
    [
        ("lock", "waiters"),
        ("semaphore", "waiters"),
        ("semaphore", "hold"),
        ("period", "marks"),
        ("ordered_lock", "line"),
    ],
)
def test_an_entry_that_cannot_be_read_is_told_by_its_name(primitive: str, part: str, damage: str, locks: Locks) -> None:
    for name, operation in OPERATIONS[primitive].items():
        everything = fresh(locks)
        redis_key = f"{everything.locks.names.tag(primitive, KEY)}:{part}"
        for field in everything.client.hkeys(redis_key):
            everything.client.hset(redis_key, field, damage)
        error = damage_met(operation, everything)
        if error is not None:
            assert error.redis_key == redis_key, name
            assert "its entry" in str(error)


@pytest.fixture
def rebuilt(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Which keys were made anew."""
    return lambda: [line.split("redis_key=")[1].split(" ")[0] for line in caplog.messages if "key_rebuilt" in line]


INDEXED: dict[str, tuple[Operation, Operation]] = {
    "lock": (OPERATIONS["lock"]["take"], lambda it: [each.key for each in inspect.survey(it.locks)]),
    "semaphore": (OPERATIONS["semaphore"]["take"], lambda it: [each.key for each in inspect.survey(it.semaphores)]),
    "rate_limit": (OPERATIONS["rate_limit"]["charge"], lambda it: sorted(each.key for each in it.limits.survey())),
    "period": (OPERATIONS["period"]["mark"], lambda it: [key for key, _ in it.periods.survey()]),
    "ordered_lock": (OPERATIONS["ordered_lock"]["enter"], lambda it: [each.key for each in it.lines.survey()]),
}


@pytest.mark.parametrize("how", ["by a script", "by a survey"])
@pytest.mark.parametrize("primitive", list(INDEXED))
def test_u05_an_index_of_the_wrong_type_is_rebuilt(
    primitive: str, how: str, everything: All, rebuilt: Callable[[], list[str]]
) -> None:
    operation, survey = INDEXED[primitive]
    before = survey(everything)
    assert KEY in before
    index = everything.locks.names.index(primitive).decode()
    everything.client.delete(index)
    to_list(everything.client, index)
    if how == "by a script":
        operation(everything)
    assert survey(everything) == before
    assert rebuilt() == [index]


def test_a_record_of_waits_and_a_seat_of_the_wrong_type_are_forgotten(
    everything: All, rebuilt: Callable[[], list[str]]
) -> None:
    """They are hints: the line and the hold say what is so, and whoever leads claims again."""
    waits, seat = everything.locks.names.waits("C").decode(), f"{everything.locks.names.prefix}:sweep"
    to_string(everything.client, waits)
    refused(everything.locks.take([KEY], who("C"), ttl=60))
    assert everything.client.hlen(waits) == 1
    everything.client.delete(seat)
    to_list(everything.client, seat)
    assert everything.leadership.claim("B", 60)
    assert rebuilt() == [waits, seat]


def test_one_damaged_key_keeps_no_other_from_being_tended(everything: All, caplog: pytest.LogCaptureFixture) -> None:
    everything.locks.give(everything.held)
    damaged = f"{everything.locks.names.tag('lock', 'bad')}:waiters"
    index = everything.locks.names.index("lock")
    to_string(everything.client, damaged)
    everything.client.zadd(f"{everything.locks.names.tag('lock', 'bad')}:line", {"X|x": 1})
    everything.client.zadd(index, {"bad": 1})
    lapsed = taken(everything.locks.take(["good"], who("A"), ttl=0.1))
    refused(everything.locks.take(["good"], who("W"), ttl=60))
    eventually(lambda: inspect.look("good", everything.locks).hold is None)
    assert everything.locks.tend() == ("W",)
    assert [line for line in caplog.messages if "not_tended key=bad" in line]
    assert everything.locks.tend() == ()
    assert len([line for line in caplog.messages if "not_tended" in line]) == 1
    everything.locks.give(lapsed)


def test_what_is_damaged_while_it_is_held_is_lost_and_the_others_are_renewed(
    make_locks: MakeLocks, caplog: pytest.LogCaptureFixture
) -> None:
    locks = make_locks()
    lost: list[str] = []
    bad, good = taken(locks.take(["bad"], who("A"), ttl=1)), taken(locks.take(["good"], who("A"), ttl=1))
    for each in (bad, good):
        locks.watch(each, lost.append)
    redis_key = f"{locks.names.tag('lock', 'bad')}:hold"
    locks.connection.client.delete(redis_key)
    to_list(locks.connection.client, redis_key)
    eventually(lambda: lost == ["bad"])
    assert locks.lost(good) == frozenset()
    assert locks.give(bad) == ()
    locks.give(good)
    assert any("not_given_back key=bad" in line for line in caplog.messages)


def test_a_server_that_is_in_trouble_is_not_told_as_damage(everything: All) -> None:
    for text in (
        "OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:12.",
        "READONLY You can't write against a read only replica. script: abc, on @user_script:12.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "unknown command 'EVALSHA'",
    ):
        assert not is_damage(exceptions.ResponseError(text))
    for kind in (exceptions.OutOfMemoryError, exceptions.ReadOnlyError, exceptions.NoPermissionError):
        assert not is_damage(kind("no. script: abc, on @user_script:12."))
    assert not is_damage(exceptions.ConnectionError("WRONGTYPE"))
