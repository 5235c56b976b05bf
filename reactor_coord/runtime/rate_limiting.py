"""The rate limit as two gates: looked at before anything is held, charged last, for it is what cannot be handed back.

Refused in a worker, the execution parks until a slot time of its own; in process it fails and says when to come again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from reactor_coord import conf
from reactor_coord.coordination import Admission, Ask, Requester, Slot, Window, rate_limits
from reactor_coord.declare.coordination import WINDOWS, RateLimitDeclaration
from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.engine.events import HoldAcquired, HoldRefused
from reactor_coord.engine.states import ParkKind
from reactor_coord.errors import CoordinationKeyError, RateLimitExceeded
from reactor_coord.results import Decided, Skipped
from reactor_coord.runtime.gates import WAITED, Ending, Hold, Place, identity
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

HOLDING = ("lock", "semaphore")
TOKEN = "rate_limit.token"

IN_PLACE_SECONDS = 0.1
WAITS_IN_PLACE = 3
"""A slot this near is waited for where one stands: parking for it costs a worker as much, and comes later.

It is the usual thing in a sliding window, where a start some milliseconds late moves the slot `limit` places behind it.
"""


class RateCharge:
    """The last gate: counts the start, in all windows or none."""

    primitive = "rate_limit"
    once = True
    spends = True
    mode = "charge"

    def applies(self, place: Place) -> bool:
        """Always."""
        return True

    def ask(self, place: Place, declaration: RateLimitDeclaration) -> Ask[Admission]:
        """For a start now; look and charge of one arrival have one token."""
        key, windows, algorithm = resolve(place, declaration)
        token = place.notes.setdefault(TOKEN, uuid4().hex)
        asking = rate_limits().looking if self.mode == "look" else rate_limits().charging
        return asking(key, identity(place.requester), token, windows, algorithm, plans=_plans(place, declaration))

    def acquire(
        self,
        place: Place,
        declaration: RateLimitDeclaration,
        *,
        patience: float | None,
        answer: Admission | None = None,
    ) -> Hold | None:
        """Pass, or park until the slot, or fail; nothing is held afterwards."""
        plans = _plans(place, declaration)
        ask = self.ask(place, declaration)
        slot = (answer or rate_limits().send(ask)).slot
        for _ in range(WAITS_IN_PLACE):
            if slot is None or not plans or slot.in_seconds > IN_PLACE_SECONDS:
                break
            time.sleep(slot.in_seconds)
            place.notes[WAITED] = True
            slot = rate_limits().send(ask).slot
        if slot is not None:
            self._refused(place, declaration, ask.key, slot, plans=plans)
        if self.mode == "charge":
            place.emit(HoldAcquired(step=place.step, primitive=self.primitive, key=ask.key, how="charged"))
        return None

    def _refused(self, place: Place, declaration: RateLimitDeclaration, key: str, slot: Slot, *, plans: bool) -> None:
        place.emit(
            HoldRefused(
                step=place.step,
                primitive=self.primitive,
                key=key,
                retry_after_seconds=round(slot.in_seconds, 3),
                planned=slot.planned,
            )
        )
        if plans:
            raise Parked(_park(place, key, slot))
        if declaration.on_contention == "skip":
            raise Decided(Skipped(reason=f"rate limit {key} is used up for {slot.in_seconds:.3f} s"))
        raise RateLimitExceeded(
            reactor=place.reactor,
            step=place.step,
            primitive=self.primitive,
            key=key,
            retry_after=slot.in_seconds,
        )

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """Nothing is held."""
        return []

    def release(self, hold: Hold, ending: Ending) -> None:
        """Nothing is held."""

    def park(self, hold: Hold, horizon: float) -> None:
        """Nothing is held."""

    def check(self, hold: Hold) -> None:
        """Nothing is held."""

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """Give a planned slot back."""
        for key in keys:
            rate_limits().cancel(key, identity(requester))

    def take_back(self, place: Place, declaration: RateLimitDeclaration) -> None:
        """A start that was counted stays counted: nothing of a success is left."""

    def rollback_wait(self, declaration: RateLimitDeclaration) -> float | None:
        """Never gates cleanup."""
        return None


class RateLook(RateCharge):
    """The early look: refuses before anything is taken, and spends nothing."""

    mode = "look"
    spends = False

    def applies(self, place: Place) -> bool:
        """Unless the charge follows at once."""
        return any(primitive in place.declarations for primitive in HOLDING)


def _plans(place: Place, declaration: RateLimitDeclaration) -> bool:
    """Whether a refusal reserves a slot, for it will park until then."""
    return place.parks and declaration.on_contention == "park"


def resolve(place: Place, declaration: RateLimitDeclaration) -> tuple[str, list[Window], str]:
    """Return key, windows and algorithm: the declaration's own, or those of the named limit in the settings."""
    own = place.text_of(declaration.key) if declaration.key is not None else ""
    windows, algorithm = windows_of(declaration, place.describe())
    if declaration.name is None:
        return own, windows, algorithm
    # The name's own colons are encoded, so that "a:b" with the key "c" is not "a" with the key "b:c".
    name = declaration.name.replace("%", "%25").replace(":", "%3A")
    return f"{name}:{own}" if own else declaration.name, windows, algorithm


def windows_of(declaration: RateLimitDeclaration, where: str) -> tuple[list[Window], str]:
    """Return the windows, shortest first, and the algorithm. `where` names the place for the error.

    Raises `CoordinationKeyError` for a named limit that the settings do not have.
    """
    if declaration.name is None:
        return [Window(limit, seconds) for limit, seconds in declaration.windows], str(declaration.algorithm)
    limits = conf.settings().RATE_LIMITS
    if declaration.name not in limits:
        raise CoordinationKeyError(
            f"{where} names the rate limit {declaration.name!r}, which REACTOR_COORD['RATE_LIMITS'] does not "
            f"have.{did_you_mean(declaration.name, limits)}",
            primitive="rate_limit",
            key=declaration.name,
        )
    named: Mapping[str, Any] = limits[declaration.name]
    windows = named.get("limits", {name: limit for name, limit in named.items() if name != "algorithm"})
    algorithm = declaration.algorithm or str(named.get("algorithm", "fixed_window"))
    found = sorted(
        (Window(int(limit), float(WINDOWS.get(str(name)) or name)) for name, limit in windows.items()),
        key=lambda window: window.seconds,
    )
    return found, algorithm


def _park(place: Place, key: str, slot: Slot) -> Park:
    now = clock.present()
    wait = replace(
        place.wait_for(RateCharge.primitive, key, [key], now),
        place=slot.planned,
        waiting=slot.planned,
        slot=datetime.fromtimestamp(slot.at, tz=UTC),
    )
    resume_at = datetime.fromtimestamp(now.timestamp() + slot.in_seconds, tz=UTC)
    return Park(ParkKind.CONTENTION, resume_at, place.step, wait, is_timed=True)
