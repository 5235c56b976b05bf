"""What operators see: who holds a key, since when and for how long, and who stands in line for it.

Reads the index of live keys, so the cost is that of what is live, never of what is in Redis. A look, not a snapshot:
each key is read a moment after the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reactor_coord.coordination.keys import to_text
from reactor_coord.coordination.lock import PRIMITIVE, Locks, split_info
from reactor_coord.coordination.process import locks

AT_ONCE = 500
"""Keys read in one pipeline."""


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
    primitive: str = PRIMITIVE


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
    primitive: str = PRIMITIVE


@dataclass(frozen=True, slots=True)
class KeyView:
    """One live key: its hold if there is one, and how many wait."""

    key: str
    hold: HoldView | None
    waiting: int


def survey(of: Locks | None = None, *, offset: int = 0, limit: int | None = None) -> list[KeyView]:
    """Live keys, those that lapse first first. What lapsed and was not tended yet is left out."""
    found = of or locks()
    last = -1 if limit is None else offset + limit - 1
    members = found.connection.commands(("ZRANGE", found.names.index(PRIMITIVE), offset, last))[0]
    return [view for view in _read(found, [to_text(each) for each in members]) if view.hold or view.waiting]


def holds(of: Locks | None = None, *, offset: int = 0, limit: int | None = None) -> list[HoldView]:
    """All holds, grants and parked holds among the live keys."""
    return [view.hold for view in survey(of, offset=offset, limit=limit) if view.hold]


def waited_for(of: Locks | None = None) -> list[KeyView]:
    """The live keys in whose line somebody stands."""
    return [view for view in survey(of) if view.waiting]


def look(key: str, of: Locks | None = None) -> KeyView:
    """One key, live or not."""
    return next(_read(of or locks(), [key]))


def line(key: str, of: Locks | None = None) -> list[WaiterView]:
    """Who stands in line for a key, first come first."""
    found = of or locks()
    _, line_name, waiters_name, _, _ = found.names.resource(PRIMITIVE, key)
    ids, packed = found.connection.commands(("ZRANGE", line_name, 0, -1), ("HGETALL", waiters_name))
    waiters = _fields(packed)
    known = [json.loads(waiters[name]) for each in ids if (name := to_text(each)) in waiters]
    return [_waiter(key, place, entry) for place, entry in enumerate(known, start=1)]


def _read(found: Locks, keys: Sequence[str]) -> Iterator[KeyView]:
    for start in range(0, len(keys), AT_ONCE):
        part = keys[start : start + AT_ONCE]
        commands: list[tuple[bytes | str, ...]] = []
        for key in part:
            hold, line_name, *_ = found.names.resource(PRIMITIVE, key)
            commands += [("HGETALL", hold), ("PTTL", hold), ("ZCARD", line_name)]
        replies = found.connection.commands(*commands)
        for at, key in enumerate(part):
            packed, left, waiting = replies[3 * at : 3 * at + 3]
            fields = _fields(packed)
            yield KeyView(key, _hold(key, fields, int(left), int(waiting)) if fields else None, int(waiting))


def _hold(key: str, fields: Mapping[str, str], left_ms: int, waiting: int) -> HoldView:
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
    )


def _waiter(key: str, place: int, entry: Mapping[str, Any]) -> WaiterView:
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
    )


def _fields(packed: Any) -> dict[str, str]:
    """A hash, whichever way the client answers one."""
    if isinstance(packed, Mapping):
        return {to_text(name): to_text(value) for name, value in packed.items()}
    return {to_text(name): to_text(value) for name, value in zip(packed[::2], packed[1::2], strict=True)}
