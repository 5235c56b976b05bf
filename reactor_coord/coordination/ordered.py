"""Ordered lines: one at a time for each key, in the order of arrival, whatever its waits and its worker's deaths.

What each mode promises stands at the head of the script. A position is kept alive by the process's keeper while its work
runs, and passed over when it shows no sign of life.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from reactor_coord.coordination.asking import Ask, alone
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.keeper import Keeper, OnLost
from reactor_coord.coordination.keys import Names, to_bytes, to_text
from reactor_coord.coordination.lock import split_info
from reactor_coord.coordination.scripts import script
from reactor_coord.coordination.types import HeldKey, Requester, Taken

PRIMITIVE = "ordered_lock"
PARTS = ("state", "ids", "line")
ORDERED = script("ordered")

T = TypeVar("T")

LEASE = 60.0
"""Seconds after its last sign of life for which a position is its worker's, if the poison timeout is not shorter."""


@dataclass(frozen=True, slots=True)
class Turn:
    """It is one's turn. `failed`: the first position of this line that failed, 0 for none. `adopted`: kept over a park."""

    key: str
    position: int
    epoch: int
    failed: int
    adopted: bool
    taken: Taken


@dataclass(frozen=True, slots=True)
class NotYet:
    """`ahead` positions come first; `head` is the one whose turn it is, alive for at least `left` more seconds."""

    position: int
    epoch: int
    ahead: int
    head_execution: str
    head_reactor: str
    head_step: str
    left: float


@dataclass(frozen=True, slots=True)
class PositionView:
    """One position that has not passed."""

    position: int
    state: str
    execution: str
    reactor: str
    step: str
    wake: str
    due: float = 0.0
    """Unix seconds at which it is passed over, once it is at the head, without a sign of life."""


@dataclass(frozen=True, slots=True)
class LineView:
    """A line as operators see it: who is next, what passed last, what failed first. Empty when drained.

    `epoch` tells this line from the one that begins when it is drained. Of a long one `in_flight` has the first positions.
    """

    key: str
    next: int
    last_completed: int
    last_given: int
    first_failed: int
    in_flight: tuple[PositionView, ...]
    epoch: int = 0
    waiting: int = 0
    """How many have not passed, `in_flight` or not."""

    @property
    def is_drained(self) -> bool:
        """Whether nobody is in it."""
        return not self.in_flight


class OrderedLines:
    """All ordered lines under one prefix of one Redis."""

    def __init__(self, connection: Connection, names: Names, keeper: Keeper) -> None:
        self._connection = connection
        self._names = names
        self._keeper = keeper
        keeper.renewers[PRIMITIVE] = self._renew

    def enter(self, key: str, who: str, requester: Requester, *, poison_timeout: float, ttl: float) -> Turn | NotYet:
        """Arrive, or arrive again: the position is the same. One round trip."""
        return self.send(self.entering(key, who, requester, poison_timeout=poison_timeout, ttl=ttl))

    def entering(
        self, key: str, who: str, requester: Requester, *, poison_timeout: float, ttl: float, strict: bool = False
    ) -> Ask[Turn | NotYet]:
        """`enter`, to be sent with others; `strict`: those do not run when it is its turn behind a failed one.

        Unanswered, what it may have had is given back in the background: its work will not be done.
        """
        lease = min(poison_timeout, LEASE)
        info = f"{requester.execution}\x1f{requester.reactor}\x1f{requester.step}"
        arrival = (
            to_bytes(requester.wake), to_bytes(info), to_bytes(requester.claim), _ms(poison_timeout), _ms(lease),
            int(strict),
        )  # fmt: skip

        def read(reply: Sequence[Any]) -> Turn | NotYet:
            position, epoch = int(reply[1]), int(reply[2])
            if int(reply[0]):
                token = f"{who}\x1f{epoch}\x1f{position}\x1f{ttl}\x1f{os.urandom(8).hex()}"
                how = "parked" if int(reply[4]) else "free"
                taken = Taken((HeldKey(key, position, how, 0.0),), token, requester, lease, PRIMITIVE)
                return Turn(key, position, epoch, int(reply[3]), bool(int(reply[4])), taken)
            execution, reactor, step = split_info(to_text(reply[4]))
            return NotYet(position, epoch, int(reply[3]), execution, reactor, step, int(reply[5]) / 1000)

        def abandon() -> None:
            if not requester.claim:
                return  # only reserved: whoever it is for comes, and finds it
            leaving = self._asking(key, "leave", who, ttl, to_bytes(requester.claim), read=_wakes)
            self._keeper.later(partial(alone, self._connection, leaving), time.monotonic() + lease)

        return replace(self._asking(key, "enter", who, ttl, *arrival, read=read), abandon=abandon)

    def send(self, ask: Ask[T]) -> T:
        """Send one of these by itself."""
        return alone(self._connection, ask)

    def watch(self, taken: Taken, on_lost: OnLost) -> None:
        """Have the position kept alive while its work runs."""
        self._keeper.watch(taken, on_lost)

    def complete(self, taken: Taken, *, failed: bool) -> tuple[str, ...]:
        """It has passed; answers whom to wake."""
        return self.send(self.completing(taken, failed=failed))

    def completing(self, taken: Taken, *, failed: bool) -> Ask[tuple[str, ...]]:
        """`complete`, to be sent with others."""
        self._keeper.forget(taken)
        return self._own(taken, "complete", "1" if failed else "0")

    def pause(self, taken: Taken, seconds: float) -> None:
        """Keep the position while nobody shows it, for that long and its poison timeout."""
        self.send(self.pausing(taken, seconds))

    def pausing(self, taken: Taken, seconds: float) -> Ask[tuple[str, ...]]:
        """`pause`, to be sent with others; it wakes nobody."""
        self._keeper.forget(taken)
        return self._own(taken, "pause", _ms(seconds))

    def leave(self, key: str, who: str, *, ttl: float) -> tuple[str, ...]:
        """Give a position back that has not begun; the line closes over it. Answers whom to wake."""
        return self.send(self._asking(key, "leave", who, ttl, "", read=_wakes))

    def returning(self, taken: Taken) -> Ask[tuple[str, ...]]:
        """`leave` of a turn that was had, but whose work has not begun; to be sent with others."""
        self._keeper.forget(taken)
        who, _, _, ttl, _ = taken.token.split("\x1f")
        return self._asking(taken.keys[0].key, "leave", who, float(ttl), to_bytes(taken.who.claim), read=_wakes)

    def skip(self, key: str, position: int, *, epoch: int | None = None, ttl: float = 86400.0) -> str | None:
        """For an operator: pass over a position, whoever has it. Answers whom to wake, None when it is not there (any more).

        `epoch`: only in the line that was looked at. Who had the position and still wants one arrives anew, last.
        """
        reply = self._run(key, "skip", "", ttl, position, "" if epoch is None else epoch)
        return None if reply is None else to_text(reply)

    def reset(self, key: str, *, epoch: int | None = None, ttl: float = 86400.0) -> bool:
        """For an operator: the line starts afresh; who is in it arrives anew at its next look. False: it is another line."""
        return self._run(key, "reset", "", ttl, "" if epoch is None else epoch) is not None

    def tend(self, limit: int = 200) -> tuple[str, ...]:
        """Pass over heads that showed no sign of life; answers whom to wake."""
        seconds, micros = self._connection.commands(("TIME",))[0]
        now = int(seconds) * 1000 + int(micros) // 1000
        index = self._names.index(PRIMITIVE)
        due = self._connection.commands(("ZRANGEBYSCORE", index, "-inf", now, "LIMIT", 0, limit))[0]
        wakes = [to_text(self._run(to_text(key), "tend", "", 86400.0)) for key in due]
        return tuple(wake for wake in wakes if wake)

    def view(self, key: str) -> LineView:
        """Read a whole line. One round trip."""
        state, _, line = self._keys(key)
        packed_state, packed_line = self._connection.commands(("HGETALL", state), ("HGETALL", line))
        entries = [(int(position), entry) for position, entry in _pairs(packed_line)]
        return _line(key, dict(_pairs(packed_state)), entries, len(entries))

    def survey(self, *, offset: int = 0, limit: int = 500, shown: int = 50) -> list[LineView]:
        """The lines somebody is in, with the first `shown` positions of each. Three round trips, O(lines + positions shown)."""
        index = self._names.index(PRIMITIVE)
        keys = [to_text(key) for key in self._connection.commands(("ZRANGE", index, offset, offset + limit - 1))[0]]
        if not keys:
            return []
        asked = [command for key in keys for command in self._asked(key)]
        replies = self._connection.commands(*asked)
        states = [dict(_pairs(packed)) for packed in replies[::2]]
        ranges = [range(int(s.get("done", 0)) + 1, int(s.get("done", 0)) + 1 + shown) for s in states]
        wanted = [("HMGET", self._keys(key)[2], *positions) for key, positions in zip(keys, ranges, strict=True)]
        found = self._connection.commands(*wanted)
        views = [
            _line(key, state, [(at, entry) for at, entry in zip(positions, entries, strict=True) if entry], int(total))
            for key, state, positions, entries, total in zip(keys, states, ranges, found, replies[1::2], strict=True)
        ]
        return [view for view in views if not view.is_drained]

    def _asked(self, key: str) -> list[tuple[bytes | str, ...]]:
        state, _, line = self._keys(key)
        return [("HGETALL", state), ("HLEN", line)]

    def renew(self, taken: Taken) -> frozenset[str]:
        """Show a sign of life; answers the key when the position is no longer its own."""
        return frozenset(key for key, left in self._renew(taken).items() if left < 0)

    def _renew(self, taken: Taken, timeout: float | None = None, prolong: bool = True) -> dict[str, float]:
        who, epoch, position, ttl, _ = taken.token.split("\x1f")
        key = taken.keys[0].key
        alive = self._run(
            key, "seen", who, float(ttl), epoch, position, to_bytes(taken.who.claim), _ms(taken.ttl), timeout=timeout
        )
        return {key: taken.ttl if int(alive) else -1.0}

    def _own(self, taken: Taken, mode: str, last: Argument) -> Ask[tuple[str, ...]]:
        who, epoch, position, ttl, _ = taken.token.split("\x1f")
        key, more = taken.keys[0].key, (epoch, position, to_bytes(taken.who.claim), last)
        return self._asking(key, mode, who, float(ttl), *more, read=_wakes)

    def _run(self, key: str, mode: str, who: str, ttl: float, *more: Argument, timeout: float | None = None) -> Any:
        ask = self._asking(key, mode, who, ttl, *more, read=lambda reply: reply)
        return alone(self._connection, ask, timeout)

    def _asking(self, key: str, mode: str, who: str, ttl: float, *more: Argument, read: Callable[[Any], T]) -> Ask[T]:
        arguments: list[Argument] = [mode, to_bytes(key), to_bytes(who), _ms(ttl), *more]
        keys, beside = [*self._keys(key), self._index(key)], partial(self._note, key)
        return Ask(PRIMITIVE, key, ORDERED, keys, arguments, read=read, beside=beside)

    def _index(self, key: str) -> bytes:
        if self._connection.is_cluster:
            return self._names.slot_index(PRIMITIVE, key)
        return self._names.index(PRIMITIVE)

    def _note(self, key: str) -> None:
        """In a cluster the script cannot reach the index of all lines, so it is written beside it, for listing and tending."""
        name, everywhere = to_bytes(key), self._names.index(PRIMITIVE)
        score = self._connection.commands(("ZSCORE", self._index(key), name))[0]
        noted = ("ZREM", everywhere, name) if score is None else ("ZADD", everywhere, int(float(score)), name)
        self._connection.commands(noted)

    def _keys(self, key: str) -> list[bytes]:
        tag = self._names.tag(PRIMITIVE, key)
        return [f"{tag}:{part}".encode() for part in PARTS]


def _wakes(reply: bytes | str) -> tuple[str, ...]:
    return (to_text(reply),) if reply else ()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _pairs(packed: Any) -> list[tuple[str, str]]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    return [(to_text(name), to_text(value)) for name, value in items]


def _line(key: str, state: dict[str, str], packed: Sequence[tuple[int, bytes | str]], total: int) -> LineView:
    """`packed`: some positions of the line, `total`: how many it has."""
    fields = {name: int(value) for name, value in state.items()}
    entries = [(position, json.loads(to_text(entry))) for position, entry in sorted(packed)]
    flight = tuple(_position(position, entry) for position, entry in entries if entry["state"] != "void")
    done = fields.get("done", 0)
    if not flight:
        return LineView(key, 0, 0, 0, 0, ())
    given_back = len(entries) - len(flight)
    return LineView(
        key,
        done + 1,
        done,
        fields.get("last", 0),
        fields.get("failed", 0),
        flight,
        epoch=fields.get("epoch", 0),
        waiting=total - given_back,
    )


def _position(position: int, entry: dict[str, Any]) -> PositionView:
    execution, reactor, step = split_info(entry["info"])
    return PositionView(position, entry["state"], execution, reactor, step, entry["wake"], float(entry["due"]) / 1000)
