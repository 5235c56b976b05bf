"""Who waits for whom: the bounded walk from an owner to the holders of what it waits for, to what those wait for, and on.

Owners that stand in a line are recorded by the scripts (`<prefix>:waits:<owner>`, see `line.lua`); the record is only a hint, and
the line and the hold say what is so. Waits that Redis knows nothing of (a result, a turn) come from the caller. Nothing is
locked meanwhile, so a ring is believed only when a second walk finds the same tickets before the same fences: what both saw
stood all the time between. Whoever joins a line is recorded first and walks after, so of those who close a ring at once at
least one sees it.

A waiter for a lock is stuck when any holder in its way is; one for a semaphore only when every slot's holder is. A hold that
was only granted, or that goes back because its owner parks at the very same place, binds nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reactor_coord.coordination import damage
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.holding import HIGHEST_PRIORITY, split_info
from reactor_coord.coordination.keys import Names, to_text

HOPS = 40
"""How far the walk goes from where it began."""

OWNERS = 100
"""How many owners it looks at in all, the branches of semaphores included. What lies beyond counts as able to go on."""

CALL = "call:"
"""How owners begin that are no execution but one call."""

BINDING = frozenset({"held", "parked"})


@dataclass(frozen=True, slots=True)
class Blocker:
    """Who has what is waited for. `fence` tells this hold from any other of the same key."""

    owner: str
    fence: str
    execution: str = ""
    reactor: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """One owner, waiting for one key. `ticket` tells this wait from a later one.

    Stuck when any of `blockers` is, or with `needs_one` only when all are. `wake` or `inbox` is how it is told. `is_cleanup`:
    a rollback's, which shall not be the one to fail.
    """

    owner: str
    primitive: str
    key: str
    ticket: str
    blockers: tuple[Blocker, ...]
    needs_one: bool = False
    wake: str = ""
    inbox: str = ""
    is_cleanup: bool = False
    execution: str = ""
    reactor: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a ring: this wait, for what that one holds."""

    wait: Wait
    blocker: Blocker


@dataclass(frozen=True, slots=True)
class Ring:
    """Owners that wait for each other, in order; `victim` is the one that fails, empty when all of them are cleaning up."""

    links: tuple[Link, ...]
    victim: str

    @property
    def owners(self) -> tuple[str, ...]:
        """Who is in it."""
        return tuple(link.wait.owner for link in self.links)

    def wait_of(self, owner: str) -> Wait:
        """What this one of the ring waits for."""
        return next(link.wait for link in self.links if link.wait.owner == owner)

    def describe(self) -> tuple[str, ...]:
        """Name the links for people: who waits for what, and who has it."""
        return tuple(_describe(link) for link in self.links)


Waits = Mapping[str, Sequence[Wait]]
Elsewhere = Callable[[Sequence[str]], Waits]
"""Owners that stand in no line -> what they wait for otherwise."""


def nothing_else(owners: Sequence[str]) -> Waits:
    """No waits but those in lines."""
    return {}


class Deadlocks:
    """The walk over everything under one prefix of one Redis."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def find(self, owner: str, elsewhere: Elsewhere = nothing_else) -> Ring | None:
        """Walk from `owner`; the ring it is in, or one that it waits behind. Two round trips a hop; twice that for a ring."""
        first = self._walk(owner, elsewhere)
        if not _rings(first):
            return None
        again = self._walk(owner, elsewhere)
        believed = {name: [wait for wait in waits if wait in again.get(name, ())] for name, waits in first.items()}
        rings = _rings(believed)
        chosen = next((ring for ring in rings if owner in ring), rings[0] if rings else None)
        return _ring(believed, chosen, owner) if chosen else None

    def waits_of(self, owner: str) -> list[Wait]:
        """What an owner stands in line for now, and cannot have."""
        return self._waits_in_lines([owner])[owner]

    def tell(self, wait: Wait) -> None:
        """Have a process that blocks look again. A parked execution is woken by the caller, by `wait.wake`."""
        if wait.inbox:
            self._connection.commands(("LPUSH", wait.inbox, ""), ("PEXPIRE", wait.inbox, 10_000))

    def _walk(self, owner: str, elsewhere: Elsewhere) -> dict[str, list[Wait]]:
        """What each owner within reach waits for; one that waits for nothing has an empty list."""
        found: dict[str, list[Wait]] = {}
        at: list[str] = [owner]
        for _ in range(HOPS):
            waits = self._waits_in_lines(at)
            without = [each for each in at if not waits[each]]
            others = elsewhere(without) if without else {}
            for each in at:
                found[each] = waits[each] or list(others.get(each, ()))
            reached = {blocker.owner for each in at for wait in found[each] for blocker in wait.blockers}
            at = sorted(reached - found.keys())[: OWNERS - len(found)]
            if not at:
                break
        return found

    def _waits_in_lines(self, owners: Sequence[str]) -> dict[str, list[Wait]]:
        found: dict[str, list[Wait]] = {owner: [] for owner in owners}
        records = self._connection.commands(*(("HGETALL", self._names.waits(owner)) for owner in owners))
        hints = [
            (owner, *field.split("\x1f", 1), waiter)
            for owner, packed in zip(owners, records, strict=True)
            for field, waiter in _fields(packed).items()
            if "\x1f" in field
        ]
        replies = iter(self._connection.commands(*(part for hint in hints for part in self._look(*hint))))
        for owner, primitive, key, _ in hints:
            place, packed, hold, limit = (next(replies) for _ in range(4))
            with damage.told(self._connection, partial(self._names.resource, primitive, key)):
                if place is not None and packed is not None:
                    wait = _wait(owner, primitive, key, json.loads(packed), _fields(hold), int(limit or 0))
                    found[owner] += [wait] if wait is not None else []
        return found

    def _look(self, owner: str, primitive: str, key: str, waiter: str) -> list[tuple[Argument, ...]]:
        hold, line, waiters, meta, *_ = self._names.resource(primitive, key)
        return [("ZSCORE", line, waiter), ("HGET", waiters, waiter), ("HGETALL", hold), ("HGET", meta, "limit")]


# ---- what Redis answers


def _wait(
    owner: str, primitive: str, key: str, waiter: Mapping[str, Any], hold: Mapping[str, str], limit: int
) -> Wait | None:
    """A confirmed wait; None when what it waits for is free, or about to be."""
    blockers = _slots(hold, limit) if primitive == "semaphore" else _holder(hold)
    if not blockers or any(each.owner == owner for each in blockers):
        return None
    return Wait(
        owner,
        primitive,
        key,
        str(int(waiter["ticket"])),
        blockers,
        primitive == "semaphore",
        str(waiter["wake"]),
        str(waiter["inbox"]),
        waiter["priority"] >= HIGHEST_PRIORITY,
        *split_info(waiter["info"]),
    )


def _holder(hold: Mapping[str, str]) -> tuple[Blocker, ...]:
    if hold.get("state") not in BINDING:
        return ()
    return (Blocker(hold["owner"], hold["fence"], *split_info(hold["info"])),)


def _slots(hold: Mapping[str, str], limit: int) -> tuple[Blocker, ...]:
    """Whoever has a slot; nobody while one is free, or on its way to somebody who will come for it."""
    slots = [(owner, slot) for owner, packed in hold.items() for slot in json.loads(packed)]
    if len(slots) < limit or any(slot["state"] not in BINDING for _, slot in slots):
        return ()
    return tuple(sorted((_slot(owner, slot) for owner, slot in slots), key=lambda each: (each.owner, each.fence)))


def _slot(owner: str, slot: Mapping[str, Any]) -> Blocker:
    return Blocker(owner, str(slot["fence"]), *split_info(slot["info"]))


def _fields(packed: Any) -> dict[str, str]:
    """A hash, whichever way the client answers one."""
    items = packed.items() if isinstance(packed, Mapping) else zip(packed[::2], packed[1::2], strict=True)
    return {to_text(name): to_text(value) for name, value in items}


# ---- rings


def _rings(found: Waits) -> list[frozenset[str]]:
    """The sets of owners in which each waits, over others of the set, for itself, and none can go on."""
    stuck = _stuck(found)
    ways = {owner: _ways(found, owner, stuck) for owner in stuck}
    within = {owner: _within_reach(ways, owner) for owner in stuck}
    rings = {
        frozenset(each for each in within[owner] if owner in within[each]) for owner in stuck if owner in within[owner]
    }
    return sorted(rings, key=sorted)


def _stuck(found: Waits) -> set[str]:
    """Take away whoever can go on, and then who waits for those, until nobody is left who can."""
    stuck = {owner for owner, waits in found.items() if waits}
    while True:
        free = {owner for owner in stuck if not any(_is_blocked(found, wait, stuck) for wait in found[owner])}
        if not free:
            return stuck
        stuck -= free


def _is_blocked(found: Waits, wait: Wait, stuck: set[str]) -> bool:
    blocking = [each.owner in stuck and _is_binding(found, wait, each) for each in wait.blockers]
    return all(blocking) if wait.needs_one else any(blocking)


def _is_binding(found: Waits, wait: Wait, blocker: Blocker) -> bool:
    """What its owner took at the very place at which it parks goes back by itself; but a turn is kept."""
    if wait.primitive not in {"lock", "semaphore"}:
        return True
    place = (blocker.execution, blocker.reactor, blocker.step)
    waits = found.get(blocker.owner, ())
    return not any(each.wake and (each.execution, each.reactor, each.step) == place for each in waits)


def _ways(found: Waits, owner: str, stuck: set[str]) -> dict[str, Link]:
    """From a stuck owner to those that it is stuck behind."""
    return {
        blocker.owner: Link(wait, blocker)
        for wait in found[owner]
        if _is_blocked(found, wait, stuck)
        for blocker in wait.blockers
        if blocker.owner in stuck and _is_binding(found, wait, blocker)
    }


def _within_reach(ways: Mapping[str, Mapping[str, Link]], owner: str) -> set[str]:
    reached: set[str] = set()
    at = list(ways[owner])
    while at:
        each = at.pop()
        if each not in reached:
            reached.add(each)
            at += ways[each]
    return reached


def _ring(found: Waits, members: frozenset[str], owner: str) -> Ring:
    """The shortest way around through the victim."""
    stuck = _stuck(found)
    ways = {each: _ways(found, each, stuck) for each in members}
    victim = _victim(found, members)
    begin = victim or (owner if owner in members else min(members))
    return Ring(_way_around(ways, members, begin), victim)


def _way_around(ways: Mapping[str, Mapping[str, Link]], members: frozenset[str], begin: str) -> tuple[Link, ...]:
    before: dict[str, str] = {}
    at = [begin]
    while begin not in before:
        here, at = at, []
        for each in here:
            for following in sorted(ways[each].keys() & members):
                if following not in before:
                    before[following] = each
                    at.append(following)
    links: list[Link] = []
    each = begin
    while not links or each != begin:
        links.append(ways[before[each]][each])
        each = before[each]
    return tuple(reversed(links))


def _victim(found: Waits, members: Iterable[str]) -> str:
    """The youngest: what it did is the least to undo. A direct call is nobody's execution and has nothing to undo."""
    able = [each for each in members if not any(wait.is_cleanup for wait in found[each])]
    return max(able, key=_age, default="")


def _age(owner: str) -> tuple[bool, str]:
    return owner.startswith(CALL), owner


def _describe(link: Link) -> str:
    wait, blocker = link.wait, link.blocker
    who = _name(wait.owner, wait.reactor, wait.step)
    what = f"{wait.primitive.replace('_', ' ')} {wait.key!r}"
    return f"{who} waits for {what}, held by {_name(blocker.owner, blocker.reactor, blocker.step)}"


def _name(owner: str, reactor: str, step: str) -> str:
    where = ".".join(part for part in (reactor, step) if part)
    who = f"owner {owner}" if owner.startswith(CALL) else f"execution {owner}"
    return f"{where} of {who}" if where else who
