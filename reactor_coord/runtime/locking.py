"""The lock as a gate: `with_lock` around a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reactor_coord.coordination import Ask, Locks, Refused, Requester, Taken, locks
from reactor_coord.declare.coordination import LockDeclaration
from reactor_coord.errors import LockContended
from reactor_coord.runtime.holding import HoldingGate


class LockGate(HoldingGate):
    """All the keys of a lock, or none."""

    primitive = "lock"
    contended = LockContended

    @property
    def holdings(self) -> Locks:
        """The process's locks."""
        return locks()

    def take(
        self, keys: Sequence[str], who: Requester, declaration: LockDeclaration, *, max_waiting: int | None
    ) -> Taken | Refused:
        """All keys at once."""
        return locks().take(keys, who, ttl=declaration.ttl, max_waiting=max_waiting)

    def taking(
        self, keys: Sequence[str], who: Requester, declaration: LockDeclaration, *, join: bool, max_waiting: int | None
    ) -> Ask[Taken | Refused]:
        """All keys at once."""
        return locks().taking(keys, who, ttl=declaration.ttl, join=join, max_waiting=max_waiting)

    def wait(
        self,
        keys: Sequence[str],
        who: Requester,
        declaration: LockDeclaration,
        *,
        timeout: float,
        max_waiting: int | None,
        on_refused: Callable[[Refused], None] | None,
    ) -> Taken | Refused:
        """All keys at once, in the same line."""
        return locks().wait(
            keys, who, ttl=declaration.ttl, timeout=timeout, max_waiting=max_waiting, on_refused=on_refused
        )

    def rollback_wait(self, declaration: LockDeclaration) -> float | None:
        """The declared one, or the ttl."""
        return declaration.ttl if declaration.rollback_wait is None else declaration.rollback_wait
