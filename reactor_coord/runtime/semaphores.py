"""The semaphore as a gate: `with_semaphore` around a place. The limit is the declaration's, told with every arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reactor_coord.coordination import Ask, Refused, Requester, Semaphores, Taken, semaphores
from reactor_coord.declare.coordination import SemaphoreDeclaration
from reactor_coord.errors import SemaphoreContended
from reactor_coord.runtime.holding import HoldingGate

ROLLBACK_WAIT = 60.0


class SemaphoreGate(HoldingGate):
    """One slot of a semaphore, for the whole tree."""

    primitive = "semaphore"
    contended = SemaphoreContended

    @property
    def holdings(self) -> Semaphores:
        """The process's semaphores."""
        return semaphores()

    def take(
        self, keys: Sequence[str], who: Requester, declaration: SemaphoreDeclaration, *, max_waiting: int | None
    ) -> Taken | Refused:
        """A slot, or a place in line."""
        (key,) = keys
        return semaphores().take(key, who, limit=declaration.limit, ttl=declaration.ttl, max_waiting=max_waiting)

    def taking(
        self,
        keys: Sequence[str],
        who: Requester,
        declaration: SemaphoreDeclaration,
        *,
        join: bool,
        max_waiting: int | None,
    ) -> Ask[Taken | Refused]:
        """A slot, or a place in line."""
        (key,) = keys
        limit, ttl = declaration.limit, declaration.ttl
        return semaphores().taking(key, who, limit=limit, ttl=ttl, join=join, max_waiting=max_waiting)

    def wait(
        self,
        keys: Sequence[str],
        who: Requester,
        declaration: SemaphoreDeclaration,
        *,
        timeout: float,
        max_waiting: int | None,
        on_refused: Callable[[Refused], None] | None,
    ) -> Taken | Refused:
        """A slot, waiting in the same line."""
        (key,) = keys
        return semaphores().wait(
            key,
            who,
            limit=declaration.limit,
            ttl=declaration.ttl,
            timeout=timeout,
            max_waiting=max_waiting,
            on_refused=on_refused,
        )

    def rollback_wait(self, declaration: SemaphoreDeclaration) -> float | None:
        """The declared one, or a minute."""
        return ROLLBACK_WAIT if declaration.rollback_wait is None else declaration.rollback_wait
