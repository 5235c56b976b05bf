"""The period as two gates: checked before anything is taken, checked again under the hold, marked on a plain success."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from django.utils import timezone

from reactor_coord.coordination import Ask, HeldKey, Requester, Taken, periods
from reactor_coord.coordination.period import Bucket, Mark, bucket_at
from reactor_coord.declare.coordination import PeriodDeclaration
from reactor_coord.engine.events import HoldRefused
from reactor_coord.errors import NO_ANSWER
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.gates import Ending, Hold, Place, path_of

logger = logging.getLogger("reactor_coord")

HOLDING = ("lock", "semaphore")
NOTE = "period.bucket"
Looked = tuple[Bucket, Mark | None]
REASON = "period"
NEVER_LAPSES = 10.0**9

UNMARK_SECONDS = 600.0
"""For how long a mark that could not be taken back is tried again, in the background of this process."""


class PeriodCheck:
    """The early look: a second arrival in the bucket is skipped before it takes anything."""

    primitive = "period"
    once = True
    spends = False

    def applies(self, place: Place) -> bool:
        """Always."""
        return True

    def ask(self, place: Place, declaration: PeriodDeclaration) -> Ask[Looked | None] | None:
        """Whether the present bucket is marked."""
        key = place.text_of(declaration.key)
        return periods().looking(key, declaration.every, _zone_of(declaration))

    def acquire(
        self,
        place: Place,
        declaration: PeriodDeclaration,
        *,
        patience: float | None,
        answer: Looked | None = None,
    ) -> Hold | None:
        """Pass, or skip."""
        place.notes[NOTE] = self._look(place, declaration, answer)
        return None

    def _look(self, place: Place, declaration: PeriodDeclaration, answer: Looked | None) -> tuple[str, Bucket]:
        key = place.text_of(declaration.key)
        bucket, mark = answer or periods().look(key, declaration.every, _zone_of(declaration))
        if mark is None:
            return key, bucket
        place.emit(
            HoldRefused(
                step=place.step,
                primitive=self.primitive,
                key=key,
                held_by=f"execution {mark.by}",
                bucket=bucket.name,
            )
        )
        raise Decided(Skipped(reason=REASON))

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """Mark the bucket in which it began, on a plain success; anything else leaves it free."""
        if ending is not Ending.SUCCEEDED:
            return []
        key, bucket = hold.place.notes[NOTE]
        return [periods().marking(key, bucket, _run_of(hold.place.requester))]

    def release(self, hold: Hold, ending: Ending) -> None:
        """The same by itself."""
        try:
            for ask in self.giving(hold, ending):
                periods().send(ask)
        except NO_ANSWER as error:
            key, bucket = hold.place.notes[NOTE]
            logger.warning("event=reactor_coord.period_not_marked key=%s bucket=%s error=%s", key, bucket.name, error)

    def park(self, hold: Hold, horizon: float) -> None:
        """A mark to come needs no keeping."""

    def check(self, hold: Hold) -> None:
        """It cannot be lost."""

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """It has no line."""

    def take_back(self, place: Place, declaration: PeriodDeclaration) -> None:
        """The success was undone: it is listed in its bucket no longer, unless the mark is to be kept."""
        if declaration.keep_mark:
            return
        key, run = place.text_of(declaration.key), _run_of(place.requester)
        try:
            periods().unmark(key, run)
        except NO_ANSWER as error:
            logger.warning("event=reactor_coord.period_not_unmarked key=%s run=%s error=%s", key, run, error)
            periods().unmark_later(key, run, UNMARK_SECONDS)

    def rollback_wait(self, declaration: PeriodDeclaration) -> float | None:
        """Never gates cleanup."""
        return None


def _run_of(requester: Requester) -> str:
    """Name a success in its bucket, so that its undo finds it again."""
    return path_of(requester) if requester.execution else requester.owner


def _of_then(place: Place, declaration: PeriodDeclaration, instant: datetime) -> tuple[str, Bucket]:
    """The bucket in which it passed: it is not asked again whether it may, after a park or a day."""
    key = place.text_of(declaration.key)
    return key, bucket_at(instant, declaration.every, _zone_of(declaration))


def _zone_of(declaration: PeriodDeclaration) -> str:
    return declaration.timezone or timezone.get_default_timezone_name()


class PeriodRecheck(PeriodCheck):
    """Under the hold: of two that raced through the early look, one finds the other's mark."""

    once = False

    def ask(self, place: Place, declaration: PeriodDeclaration) -> Ask[Looked | None] | None:
        """Again, unless it passed long ago."""
        return None if place.admitted_at is not None else super().ask(place, declaration)

    def acquire(
        self,
        place: Place,
        declaration: PeriodDeclaration,
        *,
        patience: float | None,
        answer: Looked | None = None,
    ) -> Hold | None:
        """Look again where something was waited for in between; hold the mark to come."""
        if place.admitted_at is not None:
            place.notes[NOTE] = _of_then(place, declaration, place.admitted_at)
        elif answer or NOTE not in place.notes or any(primitive in place.declarations for primitive in HOLDING):
            place.notes[NOTE] = self._look(place, declaration, answer)
        key, _ = place.notes[NOTE]
        taken = Taken((HeldKey(key, 0, "free", 0.0),), "", place.requester, NEVER_LAPSES, self.primitive)
        return Hold(self, taken, place, declaration, is_told=False, is_fenced=False)
