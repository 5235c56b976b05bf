"""Rate limits, planned: who is refused gets a slot time of its own, so that a backlog drains at the limit.

What the script promises stands at its head. Policy (which windows, what a refusal means) is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reactor_coord.coordination import damage
from reactor_coord.coordination.asking import Ask, alone
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.keys import Names, to_bytes, to_text
from reactor_coord.coordination.scripts import script

PRIMITIVE = "rate_limit"
PARTS = ("state", "plans", "starts")

RATE_LIMIT = script("rate_limit")


@dataclass(frozen=True, slots=True)
class Window:
    """At most `limit` starts in `seconds`."""

    limit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Slot:
    """Refused: `at` is the slot's time (Unix seconds of the server), `in_seconds` how long until then."""

    at: float
    in_seconds: float
    planned: int


@dataclass(frozen=True, slots=True)
class Admission:
    """What a look or a charge answers when it is sent with others: no slot, or the one that is its own."""

    slot: Slot | None


@dataclass(frozen=True, slots=True)
class RateView:
    """A limit as operators see it: starts charged and planned in the present windows, and the planned slots to come."""

    key: str
    windows: tuple[tuple[str, int], ...]
    planned: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """One window now: starts charged and planned in it. `ends_at` (Unix seconds) is the fixed window's; None while it slides."""

    limit: int
    seconds: float
    count: int
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit with its windows as they were last asked for, and the planned slots to come, the soonest first."""

    key: str
    algorithm: str
    windows: tuple[Usage, ...]
    planned: tuple[tuple[str, float], ...]


class RateLimits:
    """All limits under one prefix of one Redis."""

    def __init__(self, connection: Connection, names: Names, *, grace: float) -> None:
        """`grace`: seconds for which a slot waits for its owner."""
        self._connection = connection
        self._names = names
        self._grace = round(grace * 1000)

    def look(self, key: str, who: str, windows: Sequence[Window], algorithm: str, *, plans: bool) -> Slot | None:
        """Whether `who` could start now; spends nothing. With `plans`, a refusal reserves the slot that it answers."""
        return alone(self._connection, self.looking(key, who, "", windows, algorithm, plans=plans)).slot

    def looking(
        self, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, *, plans: bool
    ) -> Ask[Admission]:
        """`look`, to be sent with others: before the charge of that token, which it knows when it is sent twice."""
        return self._asking("look", key, who, token, windows, algorithm, plans)

    def charge(
        self, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, *, plans: bool
    ) -> Slot | None:
        """Count a start now, in all windows or none. The same token counts once."""
        return alone(self._connection, self.charging(key, who, token, windows, algorithm, plans=plans)).slot

    def charging(
        self, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, *, plans: bool
    ) -> Ask[Admission]:
        """`charge`, to be sent with others."""
        return self._asking("charge", key, who, token, windows, algorithm, plans)

    def send(self, ask: Ask[Admission]) -> Admission:
        """Send one of these by itself."""
        return alone(self._connection, ask)

    def cancel(self, key: str, who: str) -> None:
        """Give a planned slot back, if there is one: whoever asks next may have it."""
        alone(self._connection, self._asking("cancel", key, who, "", (), "", False))

    def view(self, key: str) -> RateView:
        """Read what is charged and planned. One round trip."""
        state, plans, starts = self._keys(key)
        counts, slots, _ = self._connection.commands(("HGETALL", state), ("HGETALL", plans), ("ZCARD", starts))
        with damage.told(self._connection, lambda: self._keys(key)):
            windows = [(name, int(value)) for name, value in _pairs(counts) if ":" in name]
            planned = [(who, _slot_at(plan)) for who, plan in _pairs(slots)]
        return RateView(key, tuple(sorted(windows)), tuple(sorted(planned, key=lambda each: each[1])))

    def survey(self, *, offset: int = 0, limit: int = 500) -> list[LimitView]:
        """The limits of which something is left, those that end first first. Four round trips, O(what is live)."""
        now = self._now()
        index = self._names.index(PRIMITIVE)
        found = self._connection.commands(("ZRANGEBYSCORE", index, now, "+inf", "LIMIT", offset, limit))[0]
        return self._views([to_text(key) for key in found], now)

    def look_at(self, key: str) -> LimitView | None:
        """One limit; None when nothing of it is left."""
        return next(iter(self._views([key], self._now())), None)

    def forget(self, key: str, who: str, at: float) -> bool:
        """For an operator: give back somebody's planned slot, if it is still the one at that time."""
        plan = self._connection.commands(("HGET", self._keys(key)[1], to_bytes(who)))[0]
        if plan is None or abs(_slot_at(to_text(plan)) - at) > 0.0005:
            return False
        self.cancel(key, who)
        return True

    def _views(self, keys: Sequence[str], now: int) -> list[LimitView]:
        commands = [("HGETALL", part) for key in keys for part in self._keys(key)[:2]]
        replies = self._connection.commands(*commands) if commands else []
        known = [(key, dict(_pairs(replies[2 * at])), _pairs(replies[2 * at + 1])) for at, key in enumerate(keys)]
        known = [each for each in known if "windows" in each[1]]
        sliding = [
            ("ZCOUNT", self._keys(key)[2], f"({now - round(window.seconds * 1000)}", now)
            for key, state, _ in known
            for window in _windows(state["windows"])[1]
        ]
        counts = iter(self._connection.commands(*sliding) if sliding else ())
        views = []
        for key, state, plans in known:
            with damage.told(self._connection, partial(self._keys, key)):
                views.append(_view(key, state, plans, now, counts))
        return views

    def _now(self) -> int:
        seconds, micros = self._connection.commands(("TIME",))[0]
        return int(seconds) * 1000 + int(micros) // 1000

    def _asking(
        self, mode: str, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, plans: bool
    ) -> Ask[Admission]:
        flat = [number for window in windows for number in (window.limit, max(1, round(window.seconds * 1000)))]
        arguments: list[Argument] = [
            mode,
            to_bytes(who),
            token,
            algorithm,
            self._grace,
            int(plans),
            to_bytes(key),
            *flat,
        ]
        keys, beside = [*self._keys(key), self._index(key)], partial(self._names_in_index, key)
        return Ask(PRIMITIVE, key, RATE_LIMIT, keys, arguments, read=_admission, beside=beside)

    def _names_in_index(self, key: str) -> None:
        """In a cluster the script cannot reach the index, so it is written beside it, for listing only."""
        score = self._connection.commands(("ZSCORE", self._index(key), to_bytes(key)))[0]
        if score is not None:
            self._connection.commands(("ZADD", self._names.index(PRIMITIVE), int(float(score)), to_bytes(key)))

    def _index(self, key: str) -> bytes:
        if self._connection.is_cluster:
            return self._names.slot_index(PRIMITIVE, key)
        return self._names.index(PRIMITIVE)

    def _keys(self, key: str) -> list[bytes]:
        tag = self._names.tag(PRIMITIVE, key)
        return [f"{tag}:{part}".encode() for part in PARTS]


def _admission(reply: Sequence[Any]) -> Admission:
    passed, at, planned, now = map(int, reply)
    return Admission(None if passed else Slot(at / 1000, max(0, at - now) / 1000, planned))


def _pairs(packed: Any) -> list[tuple[str, str]]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    return [(to_text(name), to_text(value)) for name, value in items]


def _slot_at(plan: str) -> float:
    return int(plan.partition(":")[0]) / 1000


def _windows(packed: str) -> tuple[str, list[Window]]:
    algorithm, *numbers = packed.split(" ")
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return algorithm, [Window(int(limit), int(period) / 1000) for limit, period in pairs]


def _view(
    key: str, state: Mapping[str, str], plans: Sequence[tuple[str, str]], now: int, counts: Iterator[Any]
) -> LimitView:
    algorithm, windows = _windows(state["windows"])
    planned = sorted(((who, _slot_at(plan)) for who, plan in plans), key=lambda each: each[1])
    usages = [_usage(window, state, int(next(counts)), now, is_fixed=algorithm == "fixed_window") for window in windows]
    return LimitView(key, algorithm, tuple(usages), tuple(planned))


def _usage(window: Window, state: Mapping[str, str], inside: int, now: int, *, is_fixed: bool) -> Usage:
    if not is_fixed:
        return Usage(window.limit, window.seconds, inside, None)
    period = round(window.seconds * 1000)
    bucket = now // period
    count = int(state.get(f"{period}:{bucket}", 0))
    return Usage(window.limit, window.seconds, count, (bucket + 1) * period / 1000)
