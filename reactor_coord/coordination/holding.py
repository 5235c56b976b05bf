"""What lock and semaphore share: the round trips around holds that end by themselves and the lines before them.

Several keys as one, replies that came too late or never, the wait of a process that blocks, renewing, parking, giving,
tending. What each operation promises stands at the head of its Lua file. Owners and keys are strings here: what an owner
is, and how it is woken, is the caller's.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from reactor_coord.coordination import damage, wakes
from reactor_coord.coordination.asking import Ask
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.keeper import Keeper, OnLost
from reactor_coord.coordination.keys import Names, to_text
from reactor_coord.coordination.scripts import Script, script
from reactor_coord.coordination.types import HeldKey, Holder, Refused, Requester, Taken
from reactor_coord.errors import NO_ANSWER, CoordinationDamaged, CoordinationUnavailable

logger = logging.getLogger("reactor_coord.coordination")

NET_LOOK = 5.0
"""Seconds after which a blocking waiter asks again though nothing woke it: the net under a lost push or a dead head."""

HAIR = 0.01
"""Seconds past the end of a holder's lease at which a blocking waiter looks."""

LATE = 0.5
"""Part of the ttl after which a reply is too late to rely on: the first renewal would be due or over."""

TRIES_WHEN_LATE = 3

RETEND_MS = 30_000
"""Milliseconds until a key that is damaged is looked after again."""

RECORD_KEEP = 86_400_000
"""Milliseconds for which it is kept what an owner waits for, as the lines are."""

HIGHEST_PRIORITY = 65_535
"""Either way; the score of a waiter must stay exact below 2^53."""

DUE = script("due")

OnRefused = Callable[[Refused], None]
"""What a process that blocks does at each refusal, standing in line already; an error of it ends the wait."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """The operations of one primitive."""

    take: Script
    give: Script
    renew: Script
    park: Script
    leave: Script
    tend: Script
    force_release: Script

    @classmethod
    def load(cls, prefix: str = "") -> Scripts:
        """Those whose files begin with `prefix`."""
        names = ("take", "give", "renew", "park", "leave", "tend", "force_release")
        return cls(*(script(f"{prefix}{name}") for name in names))


class Holdings:
    """All holds of one primitive under one prefix of one Redis. Thread-safe and fork-safe; connects with the first call.

    `handoff_grace`: seconds for which what came free waits for the head of its line, doubling with each time it did not come.
    """

    primitive: ClassVar[str]
    scripts: ClassVar[Scripts]

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
        self.keeper.renewers[self.primitive] = self._leases
        self._grace = _ms(handoff_grace)
        self._index = names.index(self.primitive)

    # ---- taking

    def _wait(self, request: Request, timeout: float, on_refused: OnRefused | None = None) -> Taken | Refused:
        names, who = request.keys, replace(request.who, wake="")
        if timeout <= 0:
            return self._take(request.of(who, ""), unique())[0]
        end = time.monotonic() + timeout
        sleeper = unique()
        inbox = self.names.inbox(self.primitive, names[0], sleeper)
        request = request.of(who, f"{who.owner}>{sleeper}", inbox)
        try:
            answer, look_in = self._take(request.again("join", timeout), unique())
            while isinstance(answer, Refused):
                wakes.deliver(answer.wakes)
                left = end - time.monotonic()
                if answer.is_full:
                    return answer
                if left <= 0:
                    return self._take(request.again("last"), unique())[0]
                if on_refused is not None:
                    self._note_wait((answer.key,), who.owner, request.waiter)
                    on_refused(answer)
                    left = max(end - time.monotonic(), 0.0)
                slept_on = (
                    self.names.inbox(self.primitive, answer.key, sleeper) if self.connection.is_cluster else inbox
                )
                self.connection.blocking.pop(slept_on, min(left, look_in + HAIR, NET_LOOK))
                left = max(end - time.monotonic(), 0.0)
                answer, look_in = self._take(request.again("join", left), unique())
            return answer
        except BaseException:
            # Redis, a time limit or Ctrl-C: nobody sleeps here any more. What was taken, `_take` gives back.
            self.keeper.later(partial(self._leave, names, who, request.waiter), time.monotonic() + timeout)
            raise

    def _take(self, request: Request, token: str) -> tuple[Taken | Refused, float]:
        """One acquisition, asked again when a reply came too late to rely on. Refused, also the seconds to the first lapse."""
        for _ in range(TRIES_WHEN_LATE):
            asked_at = time.monotonic()
            try:
                answer, look_in = self._ask(request, token, asked_at)
            except NO_ANSWER as error:
                if getattr(error, "sent", True):
                    self._give_later(self._orphan(request, token))
                error.fill(primitive=self.primitive, key=request.keys[0])
                raise
            except BaseException:  # a time limit or Ctrl-C while the reply was on its way
                self._give_later(self._orphan(request, token))
                raise
            if isinstance(answer, Refused) or time.monotonic() - asked_at < request.ttl * LATE:
                return answer, look_in
            wakes.deliver(self.give(answer))
            token = unique()
        raise CoordinationUnavailable(
            f"Redis took longer than {request.ttl * LATE:g} s to answer, half the ttl of {', '.join(request.keys)}: the "
            f"{self.primitive} might lapse before it can be renewed. Raise ttl=, or find out what slows Redis down.",
            primitive=self.primitive,
            key=request.keys[0],
        )

    def _ask(self, request: Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        if self.connection.is_cluster:
            return self._ask_one_by_one(request, token, asked_at)
        return self._ask_at_once(request, token, asked_at)

    def _asking(self, request: Request) -> Ask[Taken | Refused]:
        """The same, to be sent with others; not in a cluster."""
        token, asked_at = unique(), time.monotonic()
        return Ask(
            self.primitive,
            request.keys[0],
            self.scripts.take,
            self._keys(request.keys),
            request.arguments(self._grace, token),
            read=lambda reply: self._answer(request, token, asked_at, reply)[0],
            abandon=lambda: self._give_later(self._orphan(request, token)),
            good_for=request.ttl * LATE,
        )

    def _ask_at_once(self, request: Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        names = self._keys(request.keys)
        reply = self.connection.run(self.scripts.take, names, request.arguments(self._grace, token))
        with damage.told(self.connection, lambda: names):
            return self._answer(request, token, asked_at, reply)

    def _answer(
        self, request: Request, token: str, asked_at: float, reply: Sequence[Any]
    ) -> tuple[Taken | Refused, float]:
        if reply[0] == 1:
            rows, woken = reply[1 : len(request.keys) + 1], reply[len(request.keys) + 1 :]
            if woken:  # room for more than the one who came
                wakes.deliver(map(to_text, woken))
            held = tuple(_held(key, row) for key, row in zip(request.keys, rows, strict=True))
            return Taken(held, token, request.who, request.ttl, self.primitive, asked_at), 0.0
        return self._refused(request.keys, reply), int(reply[7]) / 1000

    def _ask_one_by_one(self, request: Request, token: str, asked_at: float) -> tuple[Taken | Refused, float]:
        """Keys in different slots: in sorted order, and refused by one all the others are given back and their lines left."""
        held: list[HeldKey] = []
        for key in request.keys:
            inbox = self.names.inbox(self.primitive, key, request.waiter.partition(">")[2]) if request.inbox else b""
            one = request.of(
                request.who, request.waiter, inbox, keys=(key,), mode=request.mode, patience=request.patience
            )
            answer, look_in = self._ask_at_once(one, token, asked_at)
            if isinstance(answer, Refused):
                given = self._give(Taken(tuple(held), token, request.who, request.ttl, self.primitive)) if held else ()
                others = tuple(other for other in request.keys if other != key)
                left = self._leave(others, request.who, request.waiter) if others else ()
                return replace(answer, wakes=(*answer.wakes, *given, *left)), look_in
            held += answer.keys
            self._note(key, request.ttl)
        return Taken(tuple(held), token, request.who, request.ttl, self.primitive, asked_at), 0.0

    def _orphan(self, request: Request, token: str) -> Taken:
        """What the server may have given while its reply was lost."""
        keys = tuple(HeldKey(key, 0, "", 0.0) for key in request.keys)
        return Taken(keys, token, request.who, request.ttl, self.primitive)

    def _refused(self, keys: tuple[str, ...], reply: Sequence[Any]) -> Refused:
        _, first, place, waiting, holder, woken, busy, _look_in, is_full, fence, in_use = reply
        return Refused(
            key=keys[int(first) - 1],
            holder=_holder(holder),
            place=int(place),
            waiting=int(waiting),
            wakes=tuple(map(to_text, woken)),
            busy=tuple(keys[int(each) - 1] for each in busy),
            primitive=self.primitive,
            is_full=bool(is_full),
            fence=int(fence),
            in_use=int(in_use),
        )

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
        reply = self._each(self.scripts.park, taken.names, self._mine(taken, _ms(horizon)))
        for key in taken.names:
            self._note(key, horizon)
        return frozenset(key for key, parked in zip(taken.names, reply, strict=True) if not parked)

    def _leases(self, taken: Taken, timeout: float | None = None, prolong: bool = True) -> dict[str, float]:
        reply = self._each(
            self.scripts.renew, taken.names, self._mine(taken, _ms(taken.ttl) if prolong else 0), timeout
        )
        return {key: int(left) / 1000 for key, left in zip(taken.names, reply, strict=True)}

    # ---- giving

    def give(self, taken: Taken) -> tuple[str, ...]:
        """Give it back, once; answers whom to wake.

        Never raises for Redis: it is tried again in the background until the `ttl` is over. What is damaged cannot be given back.
        """
        self.keeper.forget(taken)
        try:
            return self._give(taken)
        except CoordinationUnavailable:
            self._give_later(taken)
        except CoordinationDamaged as error:
            logger.warning("event=reactor_coord.not_given_back key=%s error=%s", taken.names[0], error)
        return ()

    def giving(self, taken: Taken) -> Ask[tuple[str, ...]]:
        """The same, to be sent with others; not in a cluster. Whoever cannot send it is to `give`."""
        self.keeper.forget(taken)
        arguments = (self._grace, *self._giver(taken), *taken.names)
        keys = self._keys(taken.names)
        return Ask(self.primitive, taken.names[0], self.scripts.give, keys, arguments, read=_names)

    def leave(
        self, keys: Sequence[str], who: Requester, *, parked: bool = False, keeps_ticket: bool = False
    ) -> tuple[str, ...]:
        """Out of the lines; a grant on its way goes to the next. Answers whom to wake.

        `parked`: what is parked goes too. `keeps_ticket`: it will come again, and then has its old place.
        """
        what = "parked" if parked else "aside" if keeps_ticket else "line"
        return self._leave(sorted_keys(keys), who, waiter_id(who), what)

    def tend(self, limit: int = 200) -> tuple[str, ...]:
        """Look after up to `limit` keys whose hold or grant has lapsed with nobody to release it; answers whom to wake."""
        due = self.connection.run(DUE, [self._index], (0, limit))
        woken: list[str] = []
        for key in map(to_text, due):
            try:
                woken += self._tend(key)
            except CoordinationDamaged as error:  # the others are looked after all the same
                logger.warning("event=reactor_coord.not_tended key=%s error=%s", key, error)
                self.connection.commands(("ZADD", self._index, "XX", int(time.time() * 1000) + RETEND_MS, key))
        return tuple(woken)

    def _tend(self, key: str) -> list[str]:
        names, left = self.connection.run(self.scripts.tend, self._keys((key,)), (self._grace, unique(), key))
        self._note(key, int(left) / 1000)
        return list(map(to_text, names))

    def release_by_force(self, key: str, *, fence: int, by: str = "operator") -> tuple[bool, tuple[str, ...]]:
        """Take the key from the holder with that fence and from no other; whether it was so, and whom to wake."""
        arguments = (self._grace, str(fence), by, key)
        done, woken = self.connection.run(self.scripts.force_release, self._keys((key,)), arguments)
        return bool(done), tuple(map(to_text, woken))

    def drop_waiter(self, key: str, waiter: str, owner: str, *, by: str = "operator") -> tuple[str, ...]:
        """For an operator: take somebody out of a line, passing on a grant. Answers whom to wake.

        A dropped waiter that still wants the key joins anew, last, when it next asks.
        """
        arguments = (owner, waiter, "line", by, unique())
        return tuple(map(to_text, self._each(self.scripts.leave, (key,), arguments)))

    def _give(self, taken: Taken) -> tuple[str, ...]:
        return _names(self._each(self.scripts.give, taken.names, self._giver(taken)))

    def _giver(self, taken: Taken) -> tuple[Argument, ...]:
        return (*self._mine(taken), taken.who.execution or taken.who.owner)

    def _give_later(self, taken: Taken) -> None:
        self.keeper.later(partial(self._give, taken), time.monotonic() + taken.ttl)

    def _leave(self, keys: tuple[str, ...], who: Requester, waiter: str, what: str = "line") -> tuple[str, ...]:
        by = who.execution or who.owner
        arguments = (who.owner, waiter, what, by, unique())
        return tuple(map(to_text, self._each(self.scripts.leave, keys, arguments)))

    def note_wait(self, keys: Sequence[str], who: Requester) -> None:
        """Have a walk for deadlocks find that this parked waiter stands in these lines. A round trip in a cluster only."""
        self._note_wait(tuple(keys), who.owner, waiter_id(who))

    def _note_wait(self, keys: tuple[str, ...], owner: str, waiter: str) -> None:
        if not self.connection.is_cluster:
            return  # the scripts did it
        record = self.names.waits(owner)
        pairs = [part for key in keys for part in (f"{self.primitive}\x1f{key}", waiter)]
        self.connection.commands(("HSET", record, *pairs), ("PEXPIRE", record, RECORD_KEEP))

    # ---- one script over several keys

    def _each(
        self, operation: Any, keys: tuple[str, ...], arguments: tuple[Argument, ...], timeout: float | None = None
    ) -> list[Any]:
        """Run it for all keys: at once, or in a cluster one by one; each key has its own row or none in the reply."""
        parts = [(key,) for key in keys] if self.connection.is_cluster else [keys]
        replies: list[Any] = []
        for part in parts:
            asked = (self._grace, *arguments, *part)
            replies += self.connection.run(operation, self._keys(part), asked, timeout)
        return replies

    def _keys(self, keys: tuple[str, ...]) -> list[bytes]:
        found = [self.names.slot_index(self.primitive, keys[0]) if self.connection.is_cluster else self._index]
        for key in keys:
            found += self.names.resource(self.primitive, key)
        return found

    def _mine(self, taken: Taken, *more: Argument) -> tuple[Argument, ...]:
        return (taken.who.owner, taken.who.claim, taken.token, *more)

    def _note(self, key: str, seconds: float) -> None:
        """In a cluster the scripts cannot reach the index, so it is written beside them, for listing and tending only."""
        if not self.connection.is_cluster:
            return
        at = int((time.time() + seconds) * 1000)
        self.connection.commands(("ZADD", self._index, at, key) if seconds > 0 else ("ZREM", self._index, key))


class Request:
    """What does not change while one acquisition is asked for, once or many times.

    `waiter` names who stands in line. `max_waiting` (0: any number) is how many may stand there before it. `more` is what a
    primitive says beyond that, as a semaphore its limit.
    """

    __slots__ = ("inbox", "keys", "max_waiting", "mode", "more", "patience", "ttl", "waiter", "who")

    def __init__(
        self,
        keys: tuple[str, ...],
        who: Requester,
        ttl: float,
        *,
        mode: str = "try",
        waiter: str = "",
        inbox: bytes = b"",
        patience: float = 0.0,
        max_waiting: int | None = None,
        more: tuple[Argument, ...] = (),
    ) -> None:
        if ttl <= 0:
            raise ValueError(f"ttl={ttl!r}: a hold needs a time above 0 after which it is free without its holder.")
        self.keys, self.who, self.ttl, self.mode = keys, who, ttl, mode
        self.waiter, self.inbox, self.patience = waiter, inbox, patience
        self.max_waiting, self.more = max_waiting or 0, more

    def arguments(self, grace: int, token: str) -> list[Argument]:
        who = self.who
        return [
            grace,
            token,
            who.owner,
            who.claim,
            _ms(self.ttl),
            self.mode,
            self.waiter,
            who.wake,
            self.inbox,
            _ms(self.patience + NET_LOOK),
            max(-HIGHEST_PRIORITY, min(who.priority, HIGHEST_PRIORITY)),
            f"{who.execution}\x1f{who.reactor}\x1f{who.step}\x1f{_ms(self.ttl) if who.renews else 0}",
            self.max_waiting,
            *self.keys,
            *self.more,
        ]

    def again(self, mode: str, patience: float = 0.0) -> Request:
        """The same once more, in this mode (see `arrival.lua`)."""
        return self.of(self.who, self.waiter, self.inbox, mode=mode, patience=patience)

    def of(
        self,
        who: Requester,
        waiter: str,
        inbox: bytes = b"",
        *,
        keys: tuple[str, ...] = (),
        mode: str = "try",
        patience: float = 0.0,
    ) -> Request:
        """The same of another waiter, or of some of the keys."""
        return Request(
            keys or self.keys,
            who,
            self.ttl,
            mode=mode,
            waiter=waiter,
            inbox=inbox,
            patience=patience,
            max_waiting=self.max_waiting,
            more=self.more,
        )


def sorted_keys(keys: Sequence[str]) -> tuple[str, ...]:
    if len(keys) == 1:
        return (keys[0],)
    if not keys or isinstance(keys, str):
        raise ValueError(f"keys={keys!r}: give a sequence of at least one key.")
    return tuple(sorted(set(keys)))


def waiter_id(who: Requester) -> str:
    """A parked execution is the same waiter whenever it comes, so that it keeps its ticket."""
    return f"{who.owner}|{who.wake}" if who.wake else ""


def unique() -> str:
    return os.urandom(16).hex()


def _names(reply: Sequence[bytes | str]) -> tuple[str, ...]:
    return tuple(map(to_text, reply))


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
    if None in row:
        raise ValueError("a hold lacks some of its fields")
    owner, claim, state, fence, since, remaining, info, count = (to_text(each or b"") for each in row)
    execution, reactor, step = split_info(info)
    return Holder(
        owner,
        claim,
        state,
        int(fence),
        _seconds(since),
        _seconds(remaining),
        execution,
        reactor,
        step,
        int(count),
        _renewed_to(info),
    )


def split_info(info: str) -> tuple[str, str, str]:
    """Execution, reactor and step, as they are kept in one field of a hold or a waiter."""
    execution, reactor, step = [*info.split("\x1f"), "", "", ""][:3]
    return execution, reactor, step


def _renewed_to(info: str) -> float | None:
    last = info.rpartition("\x1f")[2]
    return int(last) / 1000 if info.count("\x1f") >= 3 and last.isdecimal() else None
