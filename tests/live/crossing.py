"""Reactors that keep one key while they want another, for the live cases of deadlocks."""

from __future__ import annotations

from reactor_coord import Input, Reactor, async_step, step, with_lock, with_semaphore
from tests.live.reactors import LockedWork, Named, Work


@with_lock("{first}", ttl=5)
class Crossing(Named):
    """The first key for itself, `before` for a while, then the second."""

    first = Input(str)
    second = Input(str)
    seconds = Input(float, default=0.3)

    before = step(Work)
    charge = step(LockedWork, key=second, seconds=0, after=before)


@with_lock("{first}", ttl=5)
class Gathered(Named):
    """The first key for itself, then `gate`, so that as many as are wanted have their first, then the second."""

    first = Input(str)
    second = Input(str)
    gate = Input(str)

    before = step(LockedWork, key=gate)
    charge = step(LockedWork, key=second, after=before)


@with_semaphore("slots", limit=2, ttl=5)
class SlottedWork(Work):
    """Needs one of two slots."""


@with_semaphore("slots", limit=2, ttl=5)
class SlottedParent(Reactor):
    """Has a slot, and hands off what needs one."""

    name = Input(str)

    before = step(Work, seconds=0.2)
    child = async_step(SlottedWork, after=before)
