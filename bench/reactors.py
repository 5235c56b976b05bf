"""The reactors that are measured."""

from __future__ import annotations

import time

from reactor_coord import Input, Reactor, Step, element, map_each, step, with_lock, with_rate_limit, with_semaphore


class Ten(Reactor):
    """Ten steps in a row, each on the value of the one before."""

    start = Input(int)

    @step(value=start)
    def one(value: int) -> int:
        return value + 1

    @step(value=one)
    def two(value: int) -> int:
        return value + 1

    @step(value=two)
    def three(value: int) -> int:
        return value + 1

    @step(value=three)
    def four(value: int) -> int:
        return value + 1

    @step(value=four)
    def five(value: int) -> int:
        return value + 1

    @step(value=five)
    def six(value: int) -> int:
        return value + 1

    @step(value=six)
    def seven(value: int) -> int:
        return value + 1

    @step(value=seven)
    def eight(value: int) -> int:
        return value + 1

    @step(value=eight)
    def nine(value: int) -> int:
        return value + 1

    @step(value=nine)
    def ten(value: int) -> int:
        return value + 1

    returns = ten


@with_lock("{key}", ttl=60)
class NoteStart(Step):
    """Under a lock; its value is when its body began and ended, by the clock all processes share, and its fence."""

    key = Input(str)

    def run(self) -> dict[str, float]:
        """Take no time."""
        began = time.monotonic()
        return {"began": began, "fence": self.context.fence(self.key)}


class Locked(Reactor):
    """One locked step."""

    key = Input(str)

    work = step(NoteStart)
    returns = work


@with_rate_limit("{key}", limit=20, period="second")
class LimitedStart(Step):
    """Twenty starts a second; its value is the wall clock, by whose seconds a fixed window counts."""

    key = Input(str)

    def run(self) -> float:
        """Take no time."""
        return time.time()


class Limited(Reactor):
    """One limited step."""

    key = Input(str)

    work = step(LimitedStart)
    returns = work


class Parked(Reactor):
    """The same, told apart from it by its name in the rows."""

    key = Input(str)

    work = step(NoteStart)
    returns = work


class Free(Reactor):
    """One step that needs nothing of anybody; its value is when its body began, by the clock all processes share."""

    @step
    def work() -> float:
        return time.monotonic()

    returns = work


@with_semaphore("{key}", limit=5, ttl=60)
class SlottedWork(Step):
    """Five at a time; its value is when its body began and ended, by the clock all processes share."""

    key = Input(str)
    number = Input(int)

    def run(self) -> list[float]:
        """Long enough to meet others inside."""
        began = time.monotonic()
        time.sleep(0.005)
        return [began, time.monotonic()]


class Elements(Reactor):
    """A fan-out under the semaphore."""

    key = Input(str)
    items = Input(list[int])

    mapped = map_each(SlottedWork, over=items, key=key, number=element())
    returns = mapped
