"""The semaphore: at most `limit` owners at a time for each key, each with a lease of its own, in the order of arrival.

The limit comes with every take, so a raised one takes effect at once, and under a lowered one nobody enters until fewer hold
than that. While processes bring different limits (a deploy under way), each is admitted by its own, and what is handed out
to the line goes by the one that came last. What each operation promises stands at the head of its Lua file; the round trips
around them are those of every holding primitive (`holding`).
"""

from __future__ import annotations

from reactor_coord.coordination.asking import Ask
from reactor_coord.coordination.holding import Holdings, OnRefused, Request, Scripts, unique, waiter_id
from reactor_coord.coordination.types import Refused, Requester, Taken

PRIMITIVE = "semaphore"


class Semaphores(Holdings):
    """All semaphores under one prefix of one Redis."""

    primitive = PRIMITIVE
    scripts = Scripts.load("semaphore_")

    def take(
        self,
        key: str,
        who: Requester,
        *,
        limit: int,
        ttl: float,
        join: bool = True,
        token: str | None = None,
        max_waiting: int | None = None,
    ) -> Taken | Refused:
        """A slot of `key` for `ttl` seconds; one round trip.

        Refused, `who.wake` stands in line, unless `join=False` or `max_waiting` stand there already. Asked again with the
        same `token` it counts once. Raises `CoordinationUnavailable`; what the server may have granted by then is given
        back in the background.
        """
        return self._take(_arrival(key, who, limit, ttl, join, max_waiting), token or unique())[0]

    def taking(
        self,
        key: str,
        who: Requester,
        *,
        limit: int,
        ttl: float,
        join: bool = True,
        max_waiting: int | None = None,
    ) -> Ask[Taken | Refused]:
        """`take`, to be sent with others; not in a cluster."""
        return self._asking(_arrival(key, who, limit, ttl, join, max_waiting))

    def wait(
        self,
        key: str,
        who: Requester,
        *,
        limit: int,
        ttl: float,
        timeout: float,
        max_waiting: int | None = None,
        on_refused: OnRefused | None = None,
    ) -> Taken | Refused:
        """Like `take`, but stands in the same line up to `timeout` seconds, asleep until a slot is handed to it.

        Refused at the end, it has left the line. A wake for others that comes up on the way goes through `set_waker`.
        `on_refused` is called at every refusal, before it sleeps.
        """
        request = Request((key,), who, ttl, max_waiting=max_waiting, more=(_checked(limit),))
        return self._wait(request, timeout, on_refused)


def _arrival(key: str, who: Requester, limit: int, ttl: float, join: bool, max_waiting: int | None) -> Request:
    mode, more = "join" if join and who.wake else "try", (_checked(limit),)
    return Request((key,), who, ttl, mode=mode, waiter=waiter_id(who), max_waiting=max_waiting, more=more)


def _checked(limit: int) -> int:
    if limit < 1:
        raise ValueError(f"limit={limit!r}: a semaphore has at least one slot.")
    return limit
