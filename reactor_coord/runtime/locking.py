"""The lock as a gate: `with_lock` around a place."""

from __future__ import annotations

import time
from collections.abc import Iterable

from reactor_coord import probes
from reactor_coord.coordination import Refused, Requester, Taken, locks
from reactor_coord.declare.coordination import LockDeclaration
from reactor_coord.errors import LockContended
from reactor_coord.runtime import contention
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.gates import Ending, Hold, Place


class LockGate:
    """All the keys of a lock, or none."""

    primitive = "lock"
    once = False

    def acquire(self, place: Place, declaration: LockDeclaration, *, patience: float | None) -> Hold:
        """Take all keys at once; see `Gate`."""
        keys = [key.compute(place.arguments, place.redacted) for key in declaration.keys]
        probes.reached("step.before_take")
        parks = contention.joins_the_line(place, declaration, patience)
        answer = self._ask(place, declaration, keys, patience, parks=parks)
        if isinstance(answer, Refused):
            wake(answer.wakes)
            is_rollback = patience is not None
            contention.refuse(
                self, place, declaration, keys, answer, LockContended, parks=parks, for_rollback=is_rollback
            )
        hold = Hold(self, answer, place, declaration)
        locks().watch(answer, hold.lost.add, prolong=declaration.auto_extend)
        for key in answer.keys:
            contention.tell_taken(place, self.primitive, key)
        probes.reached("step.after_take")
        return hold

    def _ask(
        self, place: Place, declaration: LockDeclaration, keys: list[str], patience: float | None, *, parks: bool
    ) -> Taken | Refused:
        if parks:
            return locks().take(keys, place.requester, ttl=declaration.ttl)
        seconds = contention.seconds_to_wait(place, declaration, patience)
        return locks().wait(keys, place.requester, ttl=declaration.ttl, timeout=seconds)

    def release(self, hold: Hold, ending: Ending) -> None:
        """Give the keys back and wake the heads of their lines."""
        probes.reached("release.before")
        wake(locks().give(hold.taken))
        probes.reached("release.after")

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep the keys for the parked tree, unrenewed, until the horizon."""
        locks().park(hold.taken, horizon)

    def check(self, hold: Hold) -> None:
        """Ask Redis whether the keys still stand."""
        asked_at = time.monotonic()
        hold.lost |= locks().renew(hold.taken) if hold.declaration.auto_extend else locks().lost(hold.taken)
        hold.seen_at = asked_at

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Leave the lines, and let go of what is parked if asked; who gets a grant by it is woken."""
        wake(locks().leave(list(keys), requester, parked=parked))

    def rollback_wait(self, declaration: LockDeclaration) -> float | None:
        """The declared one, or the ttl."""
        return declaration.ttl if declaration.rollback_wait is None else declaration.rollback_wait
