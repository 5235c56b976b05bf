"""What the gates of primitives with holders and a line share: take or wait, tell of it, keep it, give it back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from reactor_coord import probes
from reactor_coord.coordination import HIGHEST_PRIORITY, Ask, Holdings, Refused, Requester, Taken
from reactor_coord.errors import NO_ANSWER, ContentionError
from reactor_coord.runtime import contention, deadlocks, losses
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.gates import WAITED, Ending, Hold, Place

DECLARED_AT_MOST = HIGHEST_PRIORITY - 1
"""Of a declaration: a rollback stands before all who go forward, whatever they declare."""


class HoldingGate:
    """A gate whose acquisition is held until it is given back."""

    primitive: str
    once: bool = False
    spends: bool = False
    contended: ClassVar[type[ContentionError]]

    @property
    def holdings(self) -> Holdings:
        """The primitive in Redis."""
        raise NotImplementedError

    def take(
        self, keys: Sequence[str], who: Requester, declaration: Any, *, max_waiting: int | None
    ) -> Taken | Refused:
        """Ask once; refused, it stands in line."""
        raise NotImplementedError

    def taking(
        self, keys: Sequence[str], who: Requester, declaration: Any, *, join: bool, max_waiting: int | None
    ) -> Ask[Taken | Refused]:
        """The same, to be sent with others; refused, it stands in line with `join` only."""
        raise NotImplementedError

    def wait(
        self,
        keys: Sequence[str],
        who: Requester,
        declaration: Any,
        *,
        timeout: float,
        max_waiting: int | None,
        on_refused: Callable[[Refused], None] | None,
    ) -> Taken | Refused:
        """Block for it up to `timeout` seconds."""
        raise NotImplementedError

    def take_back(self, place: Place, declaration: Any) -> None:
        """It was given back: nothing of a success is left."""

    def rollback_wait(self, declaration: Any) -> float | None:
        """See `Gate`."""
        raise NotImplementedError

    def applies(self, place: Place) -> bool:
        """Always."""
        return True

    def ask(self, place: Place, declaration: Any) -> Ask[Taken | Refused]:
        """For all of it; who would block for it joins no line yet."""
        keys, parks = _keys_of(place, declaration), contention.joins_the_line(place, declaration, None)
        probes.reached("step.before_take")
        who = _who(place, declaration)
        return self.taking(keys, who, declaration, join=parks, max_waiting=declaration.max_waiting)

    def acquire(
        self,
        place: Place,
        declaration: Any,
        *,
        patience: float | None,
        answer: Taken | Refused | None = None,
    ) -> Hold:
        """Have everything that is declared, or nothing; see `Gate`."""
        keys, parks = _keys_of(place, declaration), contention.joins_the_line(place, declaration, patience)
        if isinstance(answer, Refused) and not parks:  # one look; who blocks asks for itself
            wake(answer.wakes)
            answer = None
        if answer is None:
            probes.reached("step.before_take")
            answer = self._ask(place, declaration, keys, patience, parks=parks)
        if isinstance(answer, Refused):
            wake(answer.wakes)
            is_rollback = patience is not None
            contention.refuse(
                self, place, declaration, keys, answer, self.contended, parks=parks, for_rollback=is_rollback
            )
        hold = Hold(self, answer, place, declaration)
        try:
            self.holdings.watch(answer, losses.noticer(hold), prolong=declaration.auto_extend)
            for key in answer.keys:
                contention.tell_taken(place, self.primitive, key)
            probes.reached("step.after_take")
        except BaseException:  # a time limit or Ctrl-C: the keeper would renew for ever what nobody gives back
            self.release(hold, Ending.ABANDONED)
            raise
        return hold

    def _ask(
        self, place: Place, declaration: Any, keys: list[str], patience: float | None, *, parks: bool
    ) -> Taken | Refused:
        looks = deadlocks.watcher(place, self.primitive)
        if patience is not None:
            first = replace(place.requester, priority=HIGHEST_PRIORITY, renews=declaration.auto_extend)
            return self.wait(keys, first, declaration, timeout=patience, max_waiting=None, on_refused=looks)
        who = _who(place, declaration)
        if parks:
            return self.take(keys, who, declaration, max_waiting=declaration.max_waiting)
        seconds = contention.seconds_to_wait(place, declaration, patience)

        def refused(answer: Refused) -> None:
            place.notes[WAITED] = True
            if looks is not None:
                looks(answer)

        limit = declaration.max_waiting
        return self.wait(keys, who, declaration, timeout=seconds, max_waiting=limit, on_refused=refused)

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """All the keys of it."""
        return [self.holdings.giving(hold.taken)]

    def release(self, hold: Hold, ending: Ending) -> None:
        """Give it back and wake who got it."""
        wake(self.holdings.give(hold.taken))

    def park(self, hold: Hold, horizon: float) -> None:
        """Keep it for the parked tree, unrenewed, until the horizon."""
        self.holdings.park(hold.taken, horizon)

    def check(self, hold: Hold) -> None:
        """Ask Redis whether it still stands; when it does not answer, what the keeper last heard counts."""
        asked_at = time.monotonic()
        prolongs = hold.declaration.auto_extend
        try:
            hold.lost |= self.holdings.renew(hold.taken) if prolongs else self.holdings.lost(hold.taken)
        except NO_ANSWER:
            hold.lost |= self.holdings.keeper.lapsed(hold.taken)
        else:
            hold.seen_at = asked_at

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Leave the lines, and let go of what is parked if asked; who gets a grant by it is woken."""
        wake(self.holdings.leave(list(keys), requester, parked=parked))

    def step_aside(self, keys: Iterable[str], requester: Requester) -> None:
        """Be granted nothing while something else is waited for; the ticket stays, for whoever comes back with it."""
        wake(self.holdings.leave(list(keys), requester, keeps_ticket=True))


def _keys_of(place: Place, declaration: Any) -> list[str]:
    return [place.text_of(key) for key in declaration.keys]


def _who(place: Place, declaration: Any) -> Requester:
    """Who goes forward, at the declared priority."""
    who = place.requester
    if not declaration.auto_extend:
        who = replace(who, renews=False)
    return replace(who, priority=min(declaration.priority, DECLARED_AT_MOST)) if declaration.priority else who
