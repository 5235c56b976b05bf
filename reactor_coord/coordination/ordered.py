"""Ordered lines: one at a time for each key, in the order of arrival, whatever its waits and its worker's deaths.

What each mode promises stands at the head of the script. A position is kept alive by the process's keeper while its work
runs, and passed over when it shows no sign of life.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from reactor_coord.coordination import damage
from reactor_coord.coordination.asking import Ask, alone
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.holding import RETEND_MS
from reactor_coord.coordination.keeper import Keeper, OnLost
from reactor_coord.coordination.keys import Names, to_bytes, to_text
from reactor_coord.coordination.lock import split_info
from reactor_coord.coordination.scripts import script
from reactor_coord.coordination.types import HeldKey, Requester, Taken
from reactor_coord.errors import CoordinationDamaged

PRIMITIVE = "ordered_lock"
PARTS = ("state", "ids", "line")
ORDERED = script("ordered")

T = TypeVar("T")

logger = logging.getLogger("reactor_coord.coordination")

LEASE = 60.0
"""Seconds after its last sign of life for which a running position is its worker's, where the caller names none."""

FAILED, PASSED, SUCCEEDED = "failed", "passed", "succeeded"
"""How a position ends: skipped and halted work has merely passed."""


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
    """`ahead` positions come first; `head` is the one whose turn it is, and `left` the seconds until that is passed over.

    With none ahead it is one's own turn, which an earlier claim (a dead worker's, or one that stands still) has for `left` more
    seconds. `is_alive`: the head shows signs of life, so its end moves on.
    """

    position: int
    epoch: int
    ahead: int
    head_execution: str
    head_reactor: str
    head_step: str
    left: float
    is_alive: bool = False

    @property
    def ends_in(self) -> float | None:
        """Seconds until somebody's end that nothing moves; None while the head is alive."""
        return None if self.is_alive else self.left


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
    failed_until: float = 0.0
    """Unix seconds until which the line counts as failed though it is drained; 0: it starts afresh then."""
    failed_by: str = ""
    """The execution whose retry heals the line."""

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
        """Arrive, or arrive again: the position is the same. One round trip. See `entering`."""
        return self.send(self.entering(key, who, requester, poison_timeout=poison_timeout, ttl=ttl))

    def entering(
        self,
        key: str,
        who: str,
        requester: Requester,
        *,
        poison_timeout: float,
        ttl: float,
        strict: bool = False,
        lease: float = LEASE,
        family: str | None = None,
        retry_of: str = "",
    ) -> Ask[Turn | NotYet]:
        """`enter`, to be sent with others; `strict`: those do not run when it is its turn behind a failed one.

        `lease`: seconds for which the turn is its worker's without a sign of life. `family` is what a retry of this work names
        as `retry_of`, the owner where it is not given: a retry of the one that failed runs, and heals the line when it succeeds.

        Unanswered, what it may have had is given back in the background: its work will not be done.
        """
        lease = min(poison_timeout, lease)
        info = f"{requester.execution}\x1f{requester.reactor}\x1f{requester.step}"
        arrival = (
            to_bytes(requester.wake), to_bytes(info), to_bytes(requester.claim), _ms(poison_timeout), _ms(lease),
            int(strict), to_bytes(requester.owner if family is None else family), to_bytes(retry_of),
        )  # fmt: skip

        def read(reply: Sequence[Any]) -> Turn | NotYet:
            position, epoch = int(reply[1]), int(reply[2])
            if int(reply[0]):
                token = f"{who}\x1f{epoch}\x1f{position}\x1f{ttl}\x1f{os.urandom(8).hex()}"
                how = "parked" if int(reply[4]) else "free"
                held = HeldKey(key, fence_of(epoch, position), how, 0.0)
                taken = Taken((held,), token, requester, lease, PRIMITIVE)
                return Turn(key, position, epoch, int(reply[3]), bool(int(reply[4])), taken)
            execution, reactor, step = split_info(to_text(reply[4]))
            left, is_alive = int(reply[5]) / 1000, bool(int(reply[6]))
            return NotYet(position, epoch, int(reply[3]), execution, reactor, step, left, is_alive)

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

    def complete(self, taken: Taken, *, failed: bool, chain_ttl: float = 0.0) -> tuple[str, ...]:
        """It has passed; answers whom to wake."""
        return self.send(self.completing(taken, FAILED if failed else SUCCEEDED, chain_ttl=chain_ttl))

    def completing(self, taken: Taken, how: str, *, chain_ttl: float = 0.0) -> Ask[tuple[str, ...]]:
        """`complete`, to be sent with others. `chain_ttl`: seconds for which a failure counts, even in a drained line."""
        self._keeper.forget(taken)
        return self._own(taken, "complete", how, round(chain_ttl * 1000))

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
        wakes = [self._tend(to_text(key), now) for key in due]
        return tuple(wake for wake in wakes if wake)

    def _tend(self, key: str, now: int) -> str:
        try:
            return to_text(self._run(key, "tend", "", 86400.0))
        except CoordinationDamaged as error:  # the others are looked after all the same
            logger.warning("event=reactor_coord.not_tended key=%s error=%s", key, error)
            self._connection.commands(("ZADD", self._names.index(PRIMITIVE), "XX", now + RETEND_MS, to_bytes(key)))
            return ""

    def view(self, key: str) -> LineView:
        """Read a whole line. One round trip."""
        state, _, line = self._keys(key)
        clock, packed_state, packed_line = self._connection.commands(("TIME",), ("HGETALL", state), ("HGETALL", line))
        with damage.told(self._connection, lambda: self._keys(key)):
            entries = [(int(position), entry) for position, entry in _pairs(packed_line)]
            return _line(key, dict(_pairs(packed_state)), entries, len(entries), int(clock[0]))

    def survey(self, *, offset: int = 0, limit: int = 500, shown: int = 50) -> list[LineView]:
        """The lines somebody is in, with the first `shown` positions of each, and drained ones that still count as failed.

        Three round trips, O(lines + positions shown).
        """
        index = self._names.index(PRIMITIVE)
        clock, packed = self._connection.commands(("TIME",), ("ZRANGE", index, offset, offset + limit - 1))
        keys = [to_text(key) for key in packed]
        if not keys:
            return []
        asked = [command for key in keys for command in self._asked(key)]
        replies = self._connection.commands(*asked)
        states = [dict(_pairs(packed)) for packed in replies[::2]]
        ranges = [range(int(s.get("done", 0)) + 1, int(s.get("done", 0)) + 1 + shown) for s in states]
        wanted = [("HMGET", self._keys(key)[2], *positions) for key, positions in zip(keys, ranges, strict=True)]
        found = self._connection.commands(*wanted)
        now = int(clock[0])
        views: list[LineView] = []
        for key, state, positions, entries, total in zip(keys, states, ranges, found, replies[1::2], strict=True):
            with damage.told(self._connection, partial(self._keys, key)):
                known = [(at, entry) for at, entry in zip(positions, entries, strict=True) if entry]
                views.append(_line(key, state, known, int(total), now))
        return [view for view in views if not view.is_drained or view.failed_until]

    def _asked(self, key: str) -> list[tuple[bytes | str, ...]]:
        state, _, line = self._keys(key)
        return [("HGETALL", state), ("HLEN", line)]

    def lapsed(self, taken: Taken) -> frozenset[str]:
        """What is lost by what was last heard of it, where Redis cannot be asked."""
        return self._keeper.lapsed(taken)

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

    def _own(self, taken: Taken, mode: str, *last: Argument) -> Ask[tuple[str, ...]]:
        who, epoch, position, ttl, _ = taken.token.split("\x1f")
        key, more = taken.keys[0].key, (epoch, position, to_bytes(taken.who.claim), *last)
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


def fence_of(epoch: int, position: int) -> int:
    """The fencing token of a position: it grows over the lines of a key, where positions begin at 1 again.

    Epochs are milliseconds of the server, and a new one is later than the last by one for each 1,000 positions given.
    """
    return epoch * 1000 + position


def _wakes(reply: bytes | str) -> tuple[str, ...]:
    return (to_text(reply),) if reply else ()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _pairs(packed: Any) -> list[tuple[str, str]]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    return [(to_text(name), to_text(value)) for name, value in items]


def _line(
    key: str, state: Mapping[str, str], packed: Sequence[tuple[int, bytes | str]], total: int, now: int
) -> LineView:
    """`packed`: some positions of the line, `total`: how many it has, `now`: the server's seconds."""
    fields = {name: int(state.get(name, 0)) for name in ("epoch", "last", "done", "failed", "failed_until", "carried")}
    entries = [(position, json.loads(to_text(entry))) for position, entry in sorted(packed)]
    flight = tuple(_position(position, entry) for position, entry in entries if entry["state"] != "void")
    failed_until = fields["failed_until"] / 1000 if fields["failed_until"] > now * 1000 else 0.0
    if not flight and not failed_until:
        return LineView(key, 0, 0, 0, 0, ())
    is_over = fields["carried"] == 1 and not failed_until
    given_back = len(entries) - len(flight)
    return LineView(
        key,
        fields["done"] + 1,
        fields["done"],
        fields["last"],
        0 if is_over else fields["failed"],
        flight,
        epoch=fields["epoch"],
        waiting=total - given_back,
        failed_until=failed_until,
        failed_by="" if is_over else state.get("failed_by", ""),
    )


def _position(position: int, entry: dict[str, Any]) -> PositionView:
    execution, reactor, step = split_info(entry["info"])
    return PositionView(position, entry["state"], execution, reactor, step, entry["wake"], float(entry["due"]) / 1000)
