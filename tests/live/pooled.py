"""Reactors under semaphores, for the live cases. Slots last a second here."""

from __future__ import annotations

from reactor_coord import Input, step, with_semaphore
from tests.live.reactors import Named, Work


@with_semaphore("{key}", limit=1, ttl=1, rollback_wait=5)
class LoneWork(Work):
    """One at a time."""

    key = Input(str)


@with_semaphore("{key}", limit=3, ttl=1)
class TrioWork(Work):
    """Three at a time."""

    key = Input(str)


class Lone(Named):
    """One step of which one runs at a time."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(LoneWork)


class Trio(Named):
    """One step of which three run at a time."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(TrioWork)


@with_semaphore("{key}", limit=1, ttl=1)
class Admitted(Named):
    """One running at a time; its step needs the same slot, and another that may be busy."""

    key = Input(str)
    other = Input(str)
    charge = step(LoneWork)
    elsewhere = step(LoneWork, key=other, after=charge)
