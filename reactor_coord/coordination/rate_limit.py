"""Rate limits, planned: who is refused gets a slot time of its own, so that a backlog drains at the limit.

What the script promises stands at its head. Policy (which windows, what a refusal means) is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
class RateView:
    """A limit as operators see it: starts charged and planned in the present windows, and the planned slots to come."""

    key: str
    windows: tuple[tuple[str, int], ...]
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
        return self._ask("look", key, who, "", windows, algorithm, plans)

    def charge(
        self, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, *, plans: bool
    ) -> Slot | None:
        """Count a start now, in all windows or none. The same token counts once."""
        return self._ask("charge", key, who, token, windows, algorithm, plans)

    def cancel(self, key: str, who: str, windows: Sequence[Window], algorithm: str) -> None:
        """Give a planned slot back."""
        self._ask("cancel", key, who, "", windows, algorithm, False)

    def view(self, key: str) -> RateView:
        """Read what is charged and planned. One round trip."""
        state, plans, starts = self._keys(key)
        counts, slots, _ = self._connection.commands(("HGETALL", state), ("HGETALL", plans), ("ZCARD", starts))
        windows = [(name, int(value)) for name, value in _pairs(counts) if ":" in name]
        planned = [(who, int(at) / 1000) for who, at in _pairs(slots)]
        return RateView(key, tuple(sorted(windows)), tuple(sorted(planned, key=lambda each: each[1])))

    def _ask(
        self, mode: str, key: str, who: str, token: str, windows: Sequence[Window], algorithm: str, plans: bool
    ) -> Slot | None:
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
        passed, at, planned, now = self._connection.run(RATE_LIMIT, [*self._keys(key), self._index(key)], arguments)
        if int(passed):
            return None
        return Slot(int(at) / 1000, max(0, int(at) - int(now)) / 1000, int(planned))

    def _index(self, key: str) -> bytes:
        if self._connection.is_cluster:
            return self._names.slot_index(PRIMITIVE, key)
        return self._names.index(PRIMITIVE)

    def _keys(self, key: str) -> list[bytes]:
        tag = self._names.tag(PRIMITIVE, key)
        return [f"{tag}:{part}".encode() for part in PARTS]


def _pairs(packed: Any) -> list[tuple[str, str]]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    return [(to_text(name), to_text(value)) for name, value in items]
