"""Maps and units, for the live cases."""

from __future__ import annotations

from typing import Any

from reactor_coord import Failure, Input, ReactorFailed, Step, async_step, element, map_each, step
from reactor_coord.testing import recorder
from tests.live.models import Posting
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


class Post(Step):
    """Says which row it was given."""

    posting = Input(Posting)

    def run(self) -> int:
        """Record it."""
        with recorder.current().recording(f"run {self.context.step}", amount=str(self.posting.amount)):
            return int(self.posting.amount)


def is_due(posting: Posting) -> bool:
    """Of a hundred rows one has a body."""
    return bool(posting.amount % 100 == 0)


class OverPostings(Named):
    """A map over many rows, most of which are skipped where they are written."""

    posted = map_each(Post, over=Posting.objects.all(), posting=element(), where=is_due)


class Judged(Step):
    """Fails, halts, or gives its name."""

    name = Input(str)

    def run(self) -> str:
        """As its name says."""
        if self.name == "bad":
            raise ValueError("told to")
        if self.name == "stop":
            self.halt({"at": self.name}, reason="enough")
        return self.name


def types(values: list[Any]) -> list[Any]:
    """The values, and the types of the errors of those that failed."""
    return [_type_of(value) if isinstance(value, Failure) else value for value in values]


def _type_of(failure: Failure) -> str:
    assert isinstance(failure.error, ReactorFailed)
    assert failure.error.failure is not None
    return str(failure.error.failure.error_type)


class Lenient(Named):
    """Goes on without those that fail."""

    items = Input(list[str])
    judged = map_each(Judged, over=items, name=element(), fail_fast=False, collect=types)


class Halting(Named):
    """Ends where an element has seen enough."""

    items = Input(list[str])
    judged = map_each(Judged, over=items, name=element())


class Wide(Step):
    """Two hundred characters."""

    number = Input(int)

    def run(self) -> str:
        """The number, with zeros."""
        return f"{self.number:0200}"


class LargeMap(Named):
    """Its values together are larger than a payload may be."""

    items = Input(list[str])
    wide = map_each(Wide, over=items, number=element())
