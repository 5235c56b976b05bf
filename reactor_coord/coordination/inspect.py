"""What operators see: who holds a key, since when and for how long, and who stands in line for it. Locks and semaphores.

The other primitives hold nothing: what is marked, planned or in flight they answer themselves (`survey` of `RateLimits`,
`Periods` and `OrderedLines`). Reads the indexes of live keys, so the cost is that of what is live, never of what is in Redis.
A look, not a snapshot: each key is read a moment after the one before. Where no primitive is named, all are looked at, or the
lock for one key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reactor_coord.coordination import damage, lock, semaphore
from reactor_coord.coordination.holding import Holdings, split_info
from reactor_coord.coordination.keys import to_text
from reactor_coord.coordination.process import locks, semaphores

AT_ONCE = 500
"""Keys read in one pipeline."""

KEPT_AFTER_MS = 1000
"""Of a semaphore's slots, past the end of the last lease (`slots.lua`): by it the server's time is known."""

PRIMITIVES = (lock.PRIMITIVE, semaphore.PRIMITIVE)


@dataclass(frozen=True, slots=True)
class HoldView:
    """One key that somebody has, or has been granted. Instants are Unix seconds of the server, the rest is seconds."""

    key: str
    state: str  # held | granted | parked
    owner: str
    claim: str
    execution: str
    reactor: str
    step: str
    since: float
    remaining: float
    fence: int
    count: int
    waiting: int
    granted_at: float | None = None
    released_by: str = ""
    primitive: str = lock.PRIMITIVE


@dataclass(frozen=True, slots=True)
class WaiterView:
    """One place in the line of a key. `wake`: whom a release wakes; empty for a process that blocks."""

    key: str
    place: int
    ticket: int
    owner: str
    execution: str
    reactor: str
    step: str
    since: float
    wake: str
    is_blocking: bool
    lapses: int
    priority: int
    primitive: str = lock.PRIMITIVE
    id: str = ""


@dataclass(frozen=True, slots=True)
class KeyView:
    """One live key: its holds (of a lock at most one), and how many wait. `limit`: a semaphore's, as last asked for."""

    key: str
    holds: tuple[HoldView, ...]
    waiting: int
    primitive: str = lock.PRIMITIVE
    limit: int | None = None

    @property
    def hold(self) -> HoldView | None:
        """The hold, of several the oldest."""
        return self.holds[0] if self.holds else None


def of_primitive(primitive: str) -> Holdings:
    """The process's holdings of that primitive."""
    return {lock.PRIMITIVE: locks, semaphore.PRIMITIVE: semaphores}[primitive]()


def survey(of: Holdings | None = None, *, offset: int = 0, limit: int | None = None) -> list[KeyView]:
    """Live keys, by primitive those that lapse first first. What lapsed and was not tended yet is left out."""
    views: list[KeyView] = []
    end = None if limit is None else offset + limit
    for found in (of,) if of else map(of_primitive, PRIMITIVES):
        last = -1 if end is None else end - 1
        members = found.connection.commands(("ZRANGE", found.names.index(found.primitive), 0, last))[0]
        views += _read(found, [to_text(each) for each in members])
    return [view for view in views[offset:end] if view.holds or view.waiting]


def holds(of: Holdings | None = None, *, offset: int = 0, limit: int | None = None) -> list[HoldView]:
    """All holds, grants and parked holds among the live keys. `offset` and `limit` count keys."""
    return [hold for view in survey(of, offset=offset, limit=limit) for hold in view.holds]


def waited_for(of: Holdings | None = None) -> list[KeyView]:
    """The live keys in whose line somebody stands."""
    return [view for view in survey(of) if view.waiting]


def look(key: str, of: Holdings | None = None, primitive: str = lock.PRIMITIVE) -> KeyView:
    """One key, live or not."""
    return next(_read(of or of_primitive(primitive), [key]))


def line(key: str, of: Holdings | None = None, primitive: str = lock.PRIMITIVE) -> list[WaiterView]:
    """Who stands in line for a key, first come first."""
    found = of or of_primitive(primitive)
    _, line_name, waiters_name, *_ = found.names.resource(found.primitive, key)
    ids, packed = found.connection.commands(("ZRANGE", line_name, 0, -1), ("HGETALL", waiters_name))
    with damage.told(found.connection, partial(found.names.resource, found.primitive, key)):
        waiters = _fields(packed)
        known = [(name, json.loads(waiters[name])) for each in ids if (name := to_text(each)) in waiters]
        return [_waiter(key, place, name, entry, found.primitive) for place, (name, entry) in enumerate(known, start=1)]


def lines(views: Sequence[KeyView], *, offset: int = 0, limit: int = 1000) -> list[WaiterView]:
    """Who stands in line for these keys, key by key; of all places the `limit` from `offset` on.

    Two round trips for each primitive, whatever the number of keys.
    """
    wanted: list[tuple[KeyView, int, int]] = []
    for view in views:
        first, last = max(offset, 0), min(view.waiting, offset + limit)
        if first < last:
            wanted.append((view, first, last))
            limit -= last - first
        offset = max(offset - view.waiting, 0)
    found: list[WaiterView] = []
    for primitive in PRIMITIVES:
        found += _places(of_primitive(primitive), [each for each in wanted if each[0].primitive == primitive])
    return found


def _places(found: Holdings, wanted: Sequence[tuple[KeyView, int, int]]) -> Iterator[WaiterView]:
    names = [found.names.resource(found.primitive, view.key) for view, _, _ in wanted]
    asked = [("ZRANGE", name[1], first, last - 1) for name, (_, first, last) in zip(names, wanted, strict=True)]
    ids = found.connection.commands(*asked)
    some = [(each, name, waiters) for each, name, waiters in zip(wanted, names, ids, strict=True) if waiters]
    entries = found.connection.commands(*(("HMGET", name[2], *waiters) for _, name, waiters in some))
    for ((view, first, _), _, waiters), packed in zip(some, entries, strict=True):
        for place, (each, entry) in enumerate(zip(waiters, packed, strict=True), start=first + 1):
            if entry is not None:
                with damage.told(found.connection, partial(found.names.resource, found.primitive, view.key)):
                    read = _waiter(view.key, place, to_text(each), json.loads(to_text(entry)), found.primitive)
                yield read


def _read(found: Holdings, keys: Sequence[str]) -> Iterator[KeyView]:
    is_lock = found.primitive == lock.PRIMITIVE
    asked, view = (_lock_commands, _lock_view) if is_lock else (_semaphore_commands, _semaphore_view)
    for start in range(0, len(keys), AT_ONCE):
        part = keys[start : start + AT_ONCE]
        commands = [command for key in part for command in asked(found.names.resource(found.primitive, key))]
        replies = found.connection.commands(*commands)
        each = len(replies) // len(part)
        for at, key in enumerate(part):
            with damage.told(found.connection, partial(found.names.resource, found.primitive, key)):
                read = view(key, replies[each * at : each * (at + 1)])
            yield read


Commands = list[tuple[bytes | str | int, ...]]


def _lock_commands(names: Sequence[bytes]) -> Commands:
    hold, line_name, *_ = names
    return [("HGETALL", hold), ("PTTL", hold), ("ZCARD", line_name)]


def _lock_view(key: str, replies: Sequence[Any]) -> KeyView:
    packed, left_ms, waiting = replies
    fields = _fields(packed)
    found = (_hold(key, lock.PRIMITIVE, fields, int(left_ms), int(waiting)),) if fields else ()
    return KeyView(key, found, int(waiting))


def _semaphore_commands(names: Sequence[bytes]) -> Commands:
    hold, line_name, _, meta, _, leases = names
    return [
        ("HGETALL", hold),
        ("PTTL", hold),
        ("ZRANGE", leases, 0, -1, "WITHSCORES"),
        ("ZCARD", line_name),
        ("HGET", meta, "limit"),
    ]


def _semaphore_view(key: str, replies: Sequence[Any]) -> KeyView:
    packed, kept_ms, leases, waiting, limit = replies
    lapses = _scores(leases)
    now_ms = max(lapses.values(), default=0.0) + KEPT_AFTER_MS - int(kept_ms)
    found = [
        _hold(key, semaphore.PRIMITIVE, {**slot, "owner": owner, "count": len(slot["tokens"])}, left_ms, int(waiting))
        for owner, slots in _fields(packed).items()
        for slot in json.loads(slots)
        if (left_ms := lapses.get(f"{slot['fence']}|{owner}", 0.0) - now_ms) > 0
    ]
    found.sort(key=lambda hold: hold.fence)
    # Of a key with a line the limit is kept beside it; without, the latest slot says what it was taken under.
    limits = {int(slot["fence"]): slot.get("limit") for slots in _fields(packed).values() for slot in json.loads(slots)}
    known = limit if limit and int(waiting) else limits[max(limits)] if limits else limit
    return KeyView(key, tuple(found), int(waiting), semaphore.PRIMITIVE, int(known) if known else None)


def _hold(key: str, primitive: str, fields: Mapping[str, Any], left_ms: float, waiting: int) -> HoldView:
    execution, reactor, step = split_info(fields["info"])
    granted_at = fields.get("granted_at")
    return HoldView(
        key=key,
        state=fields["state"],
        owner=fields["owner"],
        claim=fields["claim"],
        execution=execution,
        reactor=reactor,
        step=step,
        since=int(fields["since"]) / 1000,
        remaining=max(left_ms, 0) / 1000,
        fence=int(fields["fence"]),
        count=int(fields["count"]),
        waiting=waiting,
        granted_at=int(granted_at) / 1000 if granted_at else None,
        released_by=fields.get("released_by", ""),
        primitive=primitive,
    )


def _waiter(key: str, place: int, name: str, entry: Mapping[str, Any], primitive: str) -> WaiterView:
    execution, reactor, step = split_info(entry["info"])
    return WaiterView(
        key=key,
        place=place,
        ticket=int(entry["ticket"]),
        owner=entry["owner"],
        execution=execution,
        reactor=reactor,
        step=step,
        since=entry["since"] / 1000,
        wake=entry["wake"],
        is_blocking=bool(entry["inbox"]),
        lapses=int(entry["lapses"]),
        priority=int(entry["priority"]),
        primitive=primitive,
        id=name,
    )


def _fields(packed: Any) -> dict[str, str]:
    """A hash, whichever way the client answers one."""
    if isinstance(packed, Mapping):
        return {to_text(name): to_text(value) for name, value in packed.items()}
    return {to_text(name): to_text(value) for name, value in zip(packed[::2], packed[1::2], strict=True)}


def _scores(packed: Any) -> dict[str, float]:
    """A sorted set with its scores: flat, or in pairs as newer protocols have it."""
    pairs = packed if packed and isinstance(packed[0], (list, tuple)) else zip(packed[::2], packed[1::2], strict=True)
    return {to_text(member): float(score) for member, score in pairs}
