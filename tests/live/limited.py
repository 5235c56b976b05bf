"""Reactors under rate limits, for the live cases."""

from __future__ import annotations

from reactor_coord import Input, Step, compose, step, with_lock, with_period, with_rate_limit
from reactor_coord.testing import recorder
from tests.live.reactors import LockedWork, Named, Work


@with_rate_limit("admit:{key}", limit=1, period="minute")
class Admitted(Named):
    """One start a minute; its first step is locked."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(LockedWork)


@with_rate_limit("admit:{key}:inner", limit=1, period="minute")
@with_lock("{key}:inner", ttl=5)
class AdmittedInner(Named):
    """The same as a child, under a lock of its own."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    charge = step(LockedWork)


@with_rate_limit("admit:{key}:middle", limit=1, period="minute")
@with_lock("{key}:middle", ttl=5)
class AdmittedMiddle(Named):
    """Between the two."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    prepare = step(Work, seconds=0)
    inner = compose(AdmittedInner, after=prepare)


@with_rate_limit("admit:{key}:outer", limit=1, period="minute")
@with_lock("{key}:outer", ttl=5)
class AdmittedOuter(Named):
    """The contended step is two composed levels down, each level admitted once."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    before = step(Work, seconds=0)
    middle = compose(AdmittedMiddle, after=before)


@with_rate_limit("api:{key}", limit=20, period="second")
class Call(Step):
    """A start of a limited third party."""

    key = Input(str)

    def run(self) -> None:
        """Mark the start."""
        recorder.current().mark("call")


class Calls(Named):
    """One limited call."""

    key = Input(str)

    call = step(Call)


@with_rate_limit("slow:{key}", limit=1, period=3)
class SlowCall(Call):
    """One start in three seconds."""


class Slow(Named):
    """One such call."""

    key = Input(str)

    call = step(SlowCall)


@with_rate_limit("few:{key}", limit=2, period=2)
class FewWork(Work):
    """Two starts in two seconds."""

    key = Input(str)


class Few(Named):
    """One limited step behind a free one."""

    key = Input(str)

    before = step(Work, seconds=0)
    call = step(FewWork, seconds=0, after=before)


@with_period("{key}:report", every=315_360_000)
class CoveredWork(Work):
    """Once in a decade."""

    key = Input(str)


class Covered(Named):
    """One such step."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    report = step(CoveredWork)
