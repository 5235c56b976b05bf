"""The one reactor: lock, semaphore, rate limit, period and ordered lock; compose, map, async step, retry, atomic; a late end.

Every body, compensation and undo notes both of its sides in the journal, under a name that is its own in the whole tree:
that of its step, and of an element with the element's. How long leases last is read from the environment when this module is
imported, which each process of a point does for itself: those of one that dies are short, and lapse soon.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    compose,
    element,
    map_each,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from tests.live.chaos import journal
from tests.live.chaos.variants import LEASES, PARCELS
from tests.live.models import Posting

TTL = float(os.environ.get(LEASES, "5"))
"""Seconds of every lease in Redis, renewed while its work runs; and without a sign of life until a position is passed over."""

FAR = 315_360_000
"""Seconds of a period that no run sees the end of."""


class EndFailed(Exception):
    """What the last body raises in the variant that fails late."""


class Stumbled(Exception):
    """What the first attempt of the step with a retry raises."""


class Noted(Step):
    """Notes its sides. Its value is a token of that one body, so that an undo can be seen to meet what the body made."""

    who = Input(str, default="")
    label = Input(str, default="")

    def run(self) -> dict[str, Any]:
        """Begin, act, end."""
        token = uuid.uuid4().hex[:8]
        journal.note_side("run", self.title, journal.BEGAN, token=token, key=self.context.idempotency_key)
        self.act()
        journal.note_side("run", self.title, journal.ENDED, token=token)
        return {"token": token}

    def act(self) -> None:
        """What is particular to the step."""

    def undo(self, result: dict[str, Any]) -> None:
        """Take back a success."""
        journal.note_side("undo", self.title, journal.BEGAN, token=result["token"])
        self.take_back()
        journal.note_side("undo", self.title, journal.ENDED)

    def take_back(self) -> None:
        """What is particular to the step."""

    @property
    def title(self) -> str:
        """The name of this body in the journal."""
        step = f"{self.context.step}.{self.label}" if self.label else self.context.step
        return f"{self.who}/{step}" if self.who else step


class Cleaned(Noted):
    """One that can also be cleaned up after half of it."""

    def compensate(self, error: BaseException) -> None:
        """May be called for a body of which nothing is known but that it may have begun."""
        journal.note_side("comp", self.title, journal.BEGAN, error=type(error).__name__)
        self.take_back()
        journal.note_side("comp", self.title, journal.ENDED)


@with_lock("{key}:account", ttl=TTL)
@with_semaphore("{key}:desk", limit=2, ttl=TTL)
class Reserve(Cleaned):
    """Under a lock and a semaphore."""

    key = Input(str)


@with_rate_limit("{key}:posts", limit=1000, period=86400)
class Post(Cleaned):
    """Atomic: its line in the ledger and its checkpoint commit together."""

    key = Input(str)
    atomic = True

    def act(self) -> None:
        """Write the line."""
        Posting.objects.create(account=self.key, amount=1, execution=self.context.execution_id)

    def take_back(self) -> None:
        """Remove it."""
        Posting.objects.filter(account=self.key, execution=self.context.execution_id).delete()


@with_ordered_lock("{key}:tills", poison_pill_timeout=TTL)
@with_period("{key}:once:{card}", every=FAR)
@with_rate_limit("{key}:charges", limit=1000, period=86400)
@with_lock("{key}:card", ttl=TTL)
@with_semaphore("{key}:terminals", limit=2, ttl=TTL)
class Charge(Cleaned):
    """Under all five."""

    key = Input(str)
    card = Input(str)


@with_semaphore("{key}:cashiers", limit=1, ttl=TTL)
class Payment(Reactor):
    """The composed child, which holds a slot from its first step to its end."""

    who = Input(str, default="")
    key = Input(str)
    card = Input(str)

    charge = step(Charge)
    receipt = step(Noted, after=charge)


@with_lock("{key}:letters", ttl=TTL)
class Letter(Cleaned):
    """The work on the side. In one variant it asks for its root to be cancelled, which is parked meanwhile."""

    key = Input(str)
    ending = Input(str)
    root = Input(str)

    def act(self) -> None:
        """Cancel, or nothing."""
        if self.ending == "cancel parked":
            _cancel(self.root)


@with_lock("{key}:{label}", ttl=TTL)
@with_semaphore("{key}:vans", limit=2, ttl=TTL)
class Parcel(Cleaned):
    """One element of the map."""

    key = Input(str)


class Confirm(Noted):
    """Behind all that was handed off, and without a compensate. In one variant it has its own execution cancelled."""

    ending = Input(str)

    def act(self) -> None:
        """Cancel, or nothing."""
        if self.ending == "cancel running":
            _cancel(self.context.root_id)


class Shaky(Cleaned):
    """Fails at its first attempt."""

    def act(self) -> None:
        """Once."""
        if self.context.attempt == 1:
            raise Stumbled("the first attempt stumbles")


class Last(Cleaned):
    """Where the late failure comes from."""

    ending = Input(str)

    def act(self) -> None:
        """Fail, or nothing."""
        if self.ending == "fail":
            raise EndFailed("the last step was told to fail")


class Opening(Noted):
    """The first step; its value names the root for the work on the side."""

    def run(self) -> dict[str, Any]:
        """As any, with the root's id."""
        return {**super().run(), "root": self.context.root_id}


@with_ordered_lock("{key}:orders", poison_pill_timeout=TTL)
@with_lock("{key}:order", ttl=TTL)
class Everything(Reactor):
    """All of it, under a turn and a lock from its first step to its end."""

    who = Input(str, default="")
    key = Input(str)
    card = Input(str, default="card")
    ending = Input(str, default="")

    opening = step(Opening)
    reserve = step(Reserve, after=opening)
    post = step(Post, after=reserve)
    letter = async_step(Letter, root=opening["root"], after=post)
    payment = compose(Payment, after=post)
    parcels = map_each(Parcel, over=PARCELS, batch_size=2, key=key, who=who, label=element(), after=payment)
    confirm = step(Confirm, after=[letter, parcels])
    shaky = step(Shaky, after=confirm, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.1))
    last = step(Last, after=shaky)


@with_lock("{key}:order", ttl=TTL)
class Contended(Cleaned):
    """Wants the key that the others hold from their first step to their last."""

    key = Input(str)


class Rival(Reactor):
    """Stands in the line of that key."""

    who = Input(str, default="")
    key = Input(str)
    card = Input(str, default="card")
    ending = Input(str, default="")

    before = step(Noted)
    contended = step(Contended, after=before)
    behind = step(Noted, after=contended)


def _cancel(root: str) -> None:
    from reactor_coord.models import Execution

    Execution.objects.get(pk=root).cancel(reason="asked for in the middle")
