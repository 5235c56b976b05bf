"""Reactors with an ordered step, or ordered as a whole, for the live cases."""

from __future__ import annotations

from reactor_coord import Input, step, with_ordered_lock
from tests.live.reactors import Named, Work


@with_ordered_lock("{key}", poison_pill_timeout=30)
class StrictWork(Work):
    """In order of arrival; after a failure the later ones skip it."""

    key = Input(str)


@with_ordered_lock("{key}", strict=False, poison_pill_timeout=30)
class LenientWork(Work):
    """In order of arrival, whatever failed."""

    key = Input(str)


@with_ordered_lock("{key}")
class PatientlyOrderedWork(Work):
    """Passed over after ten minutes only."""

    key = Input(str)


class PatientlyOrdered(Named):
    """One step in order, with the default patience for the dead."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    post = step(PatientlyOrderedWork)


@with_ordered_lock("{key}")
class PatientlySequenced(Named):
    """Ordered as a whole, with the same patience."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    post = step(Work)


@with_ordered_lock("{key}", poison_pill_timeout=2)
class BriefWork(Work):
    """Passed over after two seconds without a sign of life."""

    key = Input(str)


class Ordered(Named):
    """An ordered step, then a free one."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    after_seconds = Input(float, default=0.0)

    post = step(StrictWork)
    behind = step(Work, seconds=after_seconds, after=post)


class Lenient(Named):
    """The same, not strict."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    post = step(LenientWork)
    behind = step(Work, seconds=0, after=post)


class Brief(Named):
    """The same, with a short patience for the dead."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    post = step(BriefWork)


@with_ordered_lock("{key}", poison_pill_timeout=30)
class Sequenced(Named):
    """Ordered as a whole, by the order of enqueueing."""

    key = Input(str)
    seconds = Input(float, default=0.0)

    first = step(Work)
    second = step(Work, seconds=0, after=first)


@with_ordered_lock("{key}", poison_pill_timeout=2)
class BrieflySequenced(Sequenced):
    """The same, with a short patience for those that never come."""
