"""The lock: one owner at a time for each key, in the order of arrival, fenced, re-entrant by owner and claim.

Several keys are taken all or none. What each operation promises stands at the head of its Lua file; the round trips
around them are those of every holding primitive (`holding`).
"""

from __future__ import annotations

from collections.abc import Sequence

from reactor_coord.coordination.asking import Ask
from reactor_coord.coordination.holding import (
    Holdings,
    OnRefused,
    Request,
    Scripts,
    sorted_keys,
    split_info,
    unique,
    waiter_id,
)
from reactor_coord.coordination.types import Refused, Requester, Taken

__all__ = ["PRIMITIVE", "Locks", "split_info"]

PRIMITIVE = "lock"


class Locks(Holdings):
    """All locks under one prefix of one Redis."""

    primitive = PRIMITIVE
    scripts = Scripts.load()

    def take(
        self,
        keys: Sequence[str],
        who: Requester,
        *,
        ttl: float,
        join: bool = True,
        token: str | None = None,
        max_waiting: int | None = None,
    ) -> Taken | Refused:
        """All of `keys` for `ttl` seconds, or none; one round trip.

        Refused, `who.wake` stands in line for each, unless `join=False` or `max_waiting` stand in one of them already.
        Asked again with the same `token` it counts once. Raises `CoordinationUnavailable`; what the server may have granted
        by then is given back in the background.
        """
        return self._take(_arrival(keys, who, ttl, join, max_waiting), token or unique())[0]

    def taking(
        self, keys: Sequence[str], who: Requester, *, ttl: float, join: bool = True, max_waiting: int | None = None
    ) -> Ask[Taken | Refused]:
        """`take`, to be sent with others; not in a cluster."""
        return self._asking(_arrival(keys, who, ttl, join, max_waiting))

    def wait(
        self,
        keys: Sequence[str],
        who: Requester,
        *,
        ttl: float,
        timeout: float,
        max_waiting: int | None = None,
        on_refused: OnRefused | None = None,
    ) -> Taken | Refused:
        """Like `take`, but stands in the same line up to `timeout` seconds, asleep until a release hands it the key.

        Refused at the end, it has left the line. A wake for others that comes up on the way goes through `set_waker`.
        `on_refused` is called at every refusal, before it sleeps.
        """
        return self._wait(Request(sorted_keys(keys), who, ttl, max_waiting=max_waiting), timeout, on_refused)


def _arrival(keys: Sequence[str], who: Requester, ttl: float, join: bool, max_waiting: int | None) -> Request:
    mode = "join" if join and who.wake else "try"
    return Request(sorted_keys(keys), who, ttl, mode=mode, waiter=waiter_id(who), max_waiting=max_waiting)
