"""Reactors whose coordination depends on time, for the cases in which clocks are wrong."""

from __future__ import annotations

from reactor_coord import Input, step, with_period, with_semaphore
from tests.live.reactors import Named, Work


@with_semaphore("{key}:slots", limit=2, ttl=1)
class BriefSlotWork(Work):
    """Two at a time, with a lease shorter than its body."""

    key = Input(str)


class BriefSlots(Named):
    """One such step."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(BriefSlotWork)


@with_period("{key}:minutely", every="minute")
class MinutelyWork(Work):
    """Once a minute."""

    key = Input(str)


class Minutely(Named):
    """One such step."""

    key = Input(str)

    report = step(MinutelyWork, seconds=0)
