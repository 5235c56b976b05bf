"""Maps and units, for the live cases."""

from __future__ import annotations

from reactor_coord import Input, async_step, element, map_each, step
from tests.live.reactors import LockedWork, Named, Work


class LockedMap(Named):
    """A fan-out whose element step is locked on one key."""

    key = Input(str)
    items = Input(list[str])
    seconds = Input(float, default=0.0)

    mapped = map_each(LockedWork, over=items, key=key, name=element(), seconds=seconds)
    behind = step(Work, seconds=0, after=mapped)


class WideMap(Named):
    """A fan-out of unlocked work, then a step that may fail."""

    items = Input(list[str])
    seconds = Input(float, default=0.0)

    mapped = map_each(Work, over=items, name=element(), seconds=seconds, batch_size=4)
    behind = step(Work, seconds=0, after=mapped)


class LockedUnit(Named):
    """A locked step on the side, read by the last one."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    first = step(Work, seconds=0)
    u = async_step(LockedWork, after=first)
    meanwhile = step(Work, seconds=0, after=first)
    last = step(Work, seconds=0, after=[u, meanwhile])
