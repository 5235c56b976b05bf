"""The lock: one owner at a time for each key, in the order of arrival, fenced, re-entrant by owner and claim.

What each operation promises stands at the head of its Lua file; here are the round trips around them: several keys as
one, replies that came too late or never, and the wait of a process that blocks. It knows owners and keys as strings:
what an owner is, and how it is woken, is the caller's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from reactor_coord.coordination import wakes
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.keeper import Keeper, OnLost
from reactor_coord.coordination.keys import Names, to_bytes, to_text
from reactor_coord.coordination.scripts import script
from reactor_coord.coordination.types import HeldKey, Holder, Refused, Requester, Taken
from reactor_coord.errors import CoordinationUnavailable

PRIMITIVE = "lock"

NET_LOOK = 5.0
"""Seconds after which a blocking waiter asks again though nothing woke it: the net under a lost push or a dead head."""

HAIR = 0.01
"""Seconds past the end of a holder's lease at which a blocking waiter looks."""

LATE = 0.5
"""Part of the ttl after which a reply is too late to rely on: the first renewal would be due or over."""

TRIES_WHEN_LATE = 3

HIGHEST_PRIORITY = 4095
"""Either way; the score of a waiter must stay exact below 2^53."""

TAKE, GIVE, RENEW, PARK = script("take"), script("give"), script("renew"), script("park")
LEAVE, TEND, FORCE_RELEASE = script("leave"), script("tend"), script("force_release")


class Locks:
    """All locks under one prefix of one Redis. Thread-safe and fork-safe; connects with the first call.

    `handoff_grace`: seconds for which a released key waits for the head of its line, doubling with each time it did not come.
    """

    def __init__(
        self,
        connection: Connection,
        names: Names,
        *,
        handoff_grace: float = 2.0,
        keeper: Keeper | None = None,
    ) -> None:
        self.connection = connection
        self.names = names
        self.keeper = keeper or Keeper()
        self.keeper.renewers[PRIMITIVE] = self._leases
        self._grace = _ms(handoff_grace)
        self._index = names.index(PRIMITIVE)

    # ---- taking

    def take(
        self, keys: Sequence[str], who: Requester, *, ttl: float, join: bool = True, token: str | None = None
    ) -> Taken | Refused:
        """All of `keys` for `ttl` seconds, or none; one round trip.

        Refused, `who.wake` stands in line for each, unless `join=False`. Asked again with the same `token` it counts
        once. Raises `CoordinationUnavailable`; what the server may have granted by then is given back in the background.
        """
        mode, waiter = ("join", _waiter_id(who)) if join and who.wake else ("try", _waiter_id(who))
        return self._take(_Request(_sorted(keys), who, ttl, mode, waiter), token or _unique())[0]

    def wait(self, keys: Sequence[str], who: Requester, *, ttl: float, timeout: float) -> Taken | Refused:
        """Like `take`, but stands in the same line up to `timeout` seconds, asleep until a release hands it the key.

        Refused at the end, it has left the line. A wake for others that comes up on the way goes through `set_waker`.
        """
        names, who = _sorted(keys), replace(who, wake="")
        if timeout <= 0:
            return self._take(_Request(names, who, ttl, "try", ""), _unique())[0]
        end = time.monotonic() + timeout
        sleeper = _unique()
        inbox = self.names.inbox(PRIMITIVE, names[0], sleeper)
        request = _Request(names, who, ttl, "join", f"{who.owner}>{sleeper}", inbox, timeout)
        try:
            answer, look_in = self._take(request, _unique())
            while isinstance(answer, Refused):
                wakes.deliver(answer.wakes)
                left = end - time.monotonic()
                if left <= 0:
                    return self._take(request.again("last", 0.0), _unique())[0]
                slept_on = self.names.inbox(PRIMITIVE, answer.key, sleeper) if self.connection.is_cluster else inbox
                self.connection.blocking.pop(slept_on, min(left, look_in + HAIR, NET_LOOK))
                left = max(end - time.monotonic(), 0.0)
                answer, look_in = self._take(request.again("join", left), _unique())
            return answer
        except BaseException:
            # Redis, a time limit or Ctrl-C: nobody sleeps here any more. What was taken, `_take` gives back.
            self.keeper.later(partial(self._leave, names, who, request.waiter, False), time.monotonic() + timeout)
            raise

    def _take(self, request: _Request, token: str) -> tuple[Taken | Refused, float]:
        """One acquisition, asked again when a reply came too late to rely on. Refused, also the seconds to the first lapse."""
        for _ in range(TRIES_WHEN_LATE):
            asked_at = time.monotonic()
            try:
                answer, look_in = self._ask(request, token, asked_at)
            except CoordinationUnavailable as error:
                if getattr(error, "sent", True):
                    self._give_later(request.orphan(token))
                error.fill(primitive=PRIMITIVE, key=request.keys[0])
                raise
            except BaseException:  # a time limit or Ctrl-C while the reply was on its way
                self._give_later(request.orphan(token))
                raise
            if isinstance(answer, Refused) or time.monotonic() - asked_at < request.ttl * LATE:
                return answer, look_in
            wakes.deliver(self.give(answer))
            token = _unique()
        raise CoordinationUnavailable(
            f"Redis took longer than {request.ttl * LATE:g} s to answer, half the ttl of {', '.join(request.keys)}: the lock "
            f"might lapse before it can be renewed. Raise ttl=, or find out what slows Redis down.",
            primitive=PRIMITIVE,
            key=request.keys[0],
        )

    def _ask(self, request: _Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        if self.connection.is_cluster:
            return self._ask_one_by_one(request, token, asked_at)
        return self._ask_at_once(request, token, asked_at)

    def _ask_at_once(self, request: _Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        reply = self.connection.run(TAKE, self._keys(request.keys), request.arguments(self._grace, token))
        if reply[0] == 1:
            held = tuple(_held(key, row) for key, row in zip(request.keys, reply[1:], strict=True))
            return Taken(held, token, request.who, request.ttl, PRIMITIVE, asked_at), 0.0
        return _refused(request.keys, reply), int(reply[7]) / 1000

    def _ask_one_by_one(self, request: _Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        """Keys in different slots: in sorted order, and refused by one all the others are given back and their lines left."""
        held: list[HeldKey] = []
        for key in request.keys:
            inbox = self.names.inbox(PRIMITIVE, key, request.waiter.partition(">")[2]) if request.inbox else b""
            one = _Request((key,), request.who, request.ttl, request.mode, request.waiter, inbox, request.patience)
            answer, look_in = self._ask_at_once(one, token, asked_at)
            if isinstance(answer, Refused):
                given = self._give(Taken(tuple(held), token, request.who, request.ttl)) if held else ()
                others = tuple(other for other in request.keys if other != key)
                left = self._leave(others, request.who, request.waiter, False) if others else ()
                return replace(answer, wakes=(*answer.wakes, *given, *left)), look_in
            held += answer.keys
            self._note(key, request.ttl)
        return Taken(tuple(held), token, request.who, request.ttl, PRIMITIVE, asked_at), 0.0

    # ---- keeping

    def watch(self, taken: Taken, on_lost: OnLost, *, prolong: bool = True) -> None:
        """Have it renewed until it is given back; see `Keeper.watch`."""
        self.keeper.watch(taken, on_lost, prolong=prolong)

    def renew(self, taken: Taken) -> frozenset[str]:
        """Prolong every lease to a full `ttl` from now; answers which keys are lost."""
        return frozenset(key for key, left in self._leases(taken).items() if left < 0)

    def lost(self, taken: Taken) -> frozenset[str]:
        """Which keys are lost, without prolonging any: for a hold that is not to be renewed."""
        return frozenset(key for key, left in self._leases(taken, prolong=False).items() if left < 0)

    def park(self, taken: Taken, horizon: float) -> frozenset[str]:
        """Keep the keys `horizon` seconds for their owner, whatever its claim will be; answers which were lost before."""
        self.keeper.forget(taken)
        reply = self._each(PARK, taken.names, self._mine(taken, _ms(horizon)))
        for key in taken.names:
            self._note(key, horizon)
        return frozenset(key for key, parked in zip(taken.names, reply, strict=True) if not parked)

    def _leases(self, taken: Taken, timeout: float | None = None, prolong: bool = True) -> dict[str, float]:
        reply = self._each(RENEW, taken.names, self._mine(taken, _ms(taken.ttl) if prolong else 0), timeout)
        return {key: int(left) / 1000 for key, left in zip(taken.names, reply, strict=True)}

    # ---- giving

    def give(self, taken: Taken) -> tuple[str, ...]:
        """Give it back, once; answers whom to wake.

        Never raises for Redis: it is tried again in the background until the `ttl` is over.
        """
        self.keeper.forget(taken)
        try:
            return self._give(taken)
        except CoordinationUnavailable:
            self._give_later(taken)
            return ()

    def leave(self, keys: Sequence[str], who: Requester, *, parked: bool = False) -> tuple[str, ...]:
        """Out of the lines; a grant on its way goes to the next. Answers whom to wake. `parked`: what is parked goes too."""
        return self._leave(_sorted(keys), who, _waiter_id(who), parked)

    def tend(self, limit: int = 200) -> tuple[str, ...]:
        """Look after up to `limit` keys whose hold or grant has lapsed with nobody to release it; answers whom to wake."""
        seconds, micros = self.connection.commands(("TIME",))[0]
        now = int(seconds) * 1000 + int(micros) // 1000
        due = self.connection.commands(("ZRANGEBYSCORE", self._index, "-inf", now, "LIMIT", 0, limit))[0]
        woken: list[str] = []
        for key in map(to_text, due):
            wake, left = self.connection.run(TEND, self._keys((key,)), (self._grace, _unique(), to_bytes(key)))
            woken += [to_text(wake)] if wake else []
            self._note(key, int(left) / 1000)
        return tuple(woken)

    def release_by_force(self, key: str, *, fence: int, by: str = "operator") -> tuple[bool, tuple[str, ...]]:
        """Take the key from the holder with that fence and from no other; whether it was so, and whom to wake."""
        arguments = (self._grace, str(fence), to_bytes(by), to_bytes(key))
        done, woken = self.connection.run(FORCE_RELEASE, self._keys((key,)), arguments)
        return bool(done), tuple(map(to_text, woken))

    def _give(self, taken: Taken) -> tuple[str, ...]:
        by = to_bytes(taken.who.execution or taken.who.owner)
        return tuple(map(to_text, self._each(GIVE, taken.names, (*self._mine(taken), by))))

    def _give_later(self, taken: Taken) -> None:
        self.keeper.later(partial(self._give, taken), time.monotonic() + taken.ttl)

    def _leave(self, keys: tuple[str, ...], who: Requester, waiter: str, parked: bool) -> tuple[str, ...]:
        by = to_bytes(who.execution or who.owner)
        arguments = (to_bytes(who.owner), to_bytes(waiter), int(parked), by, _unique())
        return tuple(map(to_text, self._each(LEAVE, keys, arguments)))

    # ---- one script over several keys

    def _each(
        self, operation: Any, keys: tuple[str, ...], arguments: tuple[Argument, ...], timeout: float | None = None
    ) -> list[Any]:
        """Run it for all keys: at once, or in a cluster one by one; each key has its own row or none in the reply."""
        parts = [(key,) for key in keys] if self.connection.is_cluster else [keys]
        replies: list[Any] = []
        for part in parts:
            asked = (self._grace, *arguments, *map(to_bytes, part))
            replies += self.connection.run(operation, self._keys(part), asked, timeout)
        return replies

    def _keys(self, keys: tuple[str, ...]) -> list[bytes]:
        found = [self.names.slot_index(PRIMITIVE, keys[0]) if self.connection.is_cluster else self._index]
        for key in keys:
            found += self.names.resource(PRIMITIVE, key)
        return found

    def _mine(self, taken: Taken, *more: Argument) -> tuple[Argument, ...]:
        return (to_bytes(taken.who.owner), to_bytes(taken.who.claim), taken.token, *more)

    def _note(self, key: str, seconds: float) -> None:
        """In a cluster the scripts cannot reach the index, so it is written beside them, for listing and tending only."""
        if not self.connection.is_cluster:
            return
        at = int((time.time() + seconds) * 1000)
        member = to_bytes(key)
        self.connection.commands(
            ("ZADD", self._index, at, member) if seconds > 0 else ("ZREM", self._index, member),
        )


class _Request:
    """What does not change while one acquisition is asked for, once or many times."""

    __slots__ = ("inbox", "keys", "mode", "patience", "ttl", "waiter", "who")

    def __init__(
        self,
        keys: tuple[str, ...],
        who: Requester,
        ttl: float,
        mode: str,
        waiter: str,
        inbox: bytes = b"",
        patience: float = 0.0,
    ) -> None:
        if ttl <= 0:
            raise ValueError(f"ttl={ttl!r}: a lock needs a time above 0 after which it is free without its holder.")
        self.keys, self.who, self.ttl, self.mode = keys, who, ttl, mode
        self.waiter, self.inbox, self.patience = waiter, inbox, patience

    def arguments(self, grace: int, token: str) -> list[Argument]:
        who = self.who
        return [
            grace,
            token,
            to_bytes(who.owner),
            to_bytes(who.claim),
            _ms(self.ttl),
            self.mode,
            to_bytes(self.waiter),
            to_bytes(who.wake),
            self.inbox,
            _ms(self.patience + NET_LOOK),
            max(-HIGHEST_PRIORITY, min(who.priority, HIGHEST_PRIORITY)),
            to_bytes(f"{who.execution}\x1f{who.reactor}\x1f{who.step}"),
            *map(to_bytes, self.keys),
        ]

    def again(self, mode: str, patience: float) -> _Request:
        return _Request(self.keys, self.who, self.ttl, mode, self.waiter, self.inbox, patience)

    def orphan(self, token: str) -> Taken:
        """What the server may have given while its reply was lost."""
        return Taken(tuple(HeldKey(key, 0, "", 0.0) for key in self.keys), token, self.who, self.ttl, PRIMITIVE)


def _sorted(keys: Sequence[str]) -> tuple[str, ...]:
    if len(keys) == 1:
        return (keys[0],)
    if not keys or isinstance(keys, str):
        raise ValueError(f"keys={keys!r}: give a sequence of at least one key.")
    return tuple(sorted(set(keys)))


def _waiter_id(who: Requester) -> str:
    """A parked execution is the same waiter whenever it comes, so that it keeps its ticket."""
    return f"{who.owner}|{who.wake}" if who.wake else ""


def _unique() -> str:
    return os.urandom(16).hex()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _seconds(ms: bytes | str) -> float:
    return int(ms) / 1000 if ms else 0.0


def _held(key: str, row: Sequence[bytes]) -> HeldKey:
    how, fence, since, granted_at, released_by = row
    return HeldKey(
        key,
        int(fence),
        to_text(how),
        int(since) / 1000,
        int(granted_at) / 1000 if granted_at else None,
        to_text(released_by),
    )


def _holder(row: Sequence[bytes | None]) -> Holder | None:
    if row[0] is None:
        return None
    owner, claim, state, fence, since, remaining, info, count = (to_text(each or b"") for each in row)
    execution, reactor, step = split_info(info)
    return Holder(
        owner, claim, state, int(fence), _seconds(since), _seconds(remaining), execution, reactor, step, int(count)
    )


def split_info(info: str) -> tuple[str, str, str]:
    """Execution, reactor and step, as they are kept in one field of a hold or a waiter."""
    execution, _, rest = info.partition("\x1f")
    reactor, _, step = rest.partition("\x1f")
    return execution, reactor, step


def _refused(keys: tuple[str, ...], reply: Sequence[Any]) -> Refused:
    _, first, place, waiting, holder, woken, busy, _look_in = reply
    return Refused(
        key=keys[int(first) - 1],
        holder=_holder(holder),
        place=int(place),
        waiting=int(waiting),
        wakes=tuple(map(to_text, woken)),
        busy=tuple(keys[int(each) - 1] for each in busy),
        primitive=PRIMITIVE,
    )
