"""What became of single steps: which bodies ran, were tried again, skipped, refused a key, parked, undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.testing.assertions.story import Story, assertion, listed
from reactor_coord.testing.naming import Name

if TYPE_CHECKING:
    from reactor_coord.models import StepRun
    from reactor_coord.testing.assertions.story import Subject

_ENDS = (EventKind.STEP_SUCCEEDED, EventKind.STEP_FAILED, EventKind.STEP_HALTED)


@assertion
def assert_ran(subject: Subject, *steps: str, after: str | None = None) -> None:
    """The bodies of these steps ran to their end or failure, in this order, all of them after that of `after`."""
    story = Story(subject)
    wanted = (*([after] if after else []), *steps)
    story.check(*wanted)
    _assert_order(_ran(story), wanted, "ran")


@assertion
def assert_not_ran(subject: Subject, *steps: str) -> None:
    """No body of these steps has begun, nor of a step inside them, not even in an attempt that failed; no question was asked."""
    story = Story(subject)
    story.check(*steps)
    begun = [(name, run) for name, run in story.runs if _has_begun(run)]
    for step in steps:
        found = listed(f"{name} ({run.status})" for name, run in begun if name.fits(step) or name.is_below(step))
        ran = listed(str(name) for name, _ in begun)
        assert found == listed(()), f"expected {step} not to have run; it did: {found}. All that ran: {ran}"


def _has_begun(run: StepRun) -> bool:
    if run.kind == "interrupt":
        return run.status != StepStatus.PENDING
    return run.kind == "step" and run.attempts > 0


@assertion
def assert_retried(subject: Subject, step: str, times: int | None = None) -> None:
    """The step failed and was tried again at least once, or exactly `times` times: one less than its attempts."""
    story = Story(subject)
    story.check(step)
    retried = [(name, event) for name, event in story.events(EventKind.RETRYING) if name.fits(step)]
    others = listed(
        f"{name} after attempt {event.data.get('attempt')}" for name, event in story.events(EventKind.RETRYING)
    )
    wanted = "to be tried again" if times is None else f"to be tried again {times} times"
    is_so = bool(retried) if times is None else len(retried) == times
    assert is_so, f"expected {step} {wanted}; it was {len(retried)} times. Tried again were: {others}"


@assertion
def assert_skipped(subject: Subject, step: str, reason: str | None = None) -> None:
    """The step was skipped; with `reason`, for a reason that has this text in it (`"where"`, `"period"`, an author's own)."""
    story = Story(subject)
    story.check(step)
    skipped = [(name, run) for name, run in story.runs if run.status == StepStatus.SKIPPED]
    fitting = [run for name, run in skipped if name.fits(step) and (reason is None or reason in run.reason)]
    why = "" if reason is None else f" because of {reason!r}"
    found = listed(f"{name} ({run.reason or 'no reason given'})" for name, run in skipped)
    assert fitting, f"expected {step} to be skipped{why}; skipped were: {found}. Steps: {story.states()}"


@assertion
def assert_contended(subject: Subject, step: str, key: str | None = None, primitive: str | None = None) -> None:
    """The step was refused a key at least once: in a worker it parked, in process it waited or failed.

    An empty `step` is the reactor's own declarations.
    """
    story = Story(subject)
    story.check(step)
    refused = story.events(EventKind.REFUSED)
    fitting = [
        event
        for name, event in refused
        if name.fits(step) and key in (None, event.key) and primitive in (None, event.primitive)
    ]
    wanted = f"{step or 'the reactor'} to be refused {key or 'a key'}"
    found = [f"{_or_reactor(name)}: {event.primitive} {event.key}" for name, event in refused]
    assert fitting, f"expected {wanted}; refused were: {listed(found)}"


@assertion
def assert_parked(
    subject: Subject, step: str | None = None, key: str | None = None, primitive: str | None = None
) -> None:
    """It is parked now: its worker is free, and it goes on by itself. With `step` at that one, with `key` for that key.

    An empty `step` is the reactor's own declarations. An element or a unit that is parked counts, by its path.
    """
    story = Story(subject)
    story.check(step or "")
    parked = [each for each in story.waits() if each[1].status == ExecutionStatus.PARKED]
    fitting = [
        wait
        for name, _, wait in parked
        if (step is None or name.fits(step))
        and (key is None or key == wait.key or key in wait.keys)
        and primitive in (None, wait.primitive)
    ]
    wanted = "it to be parked" if step is None else f"{step or 'the reactor'} to be parked"
    for_key = "" if key is None else f" for {key!r}"
    found = [
        f"{_or_reactor(name)} for {_what(row.park_kind, wait.primitive, wait.key)}{_held(wait.holder)}"
        for name, row, wait in parked
    ]
    assert fitting, f"expected {wanted}{for_key}; the execution is {story.row.status}, parked are: {listed(found)}"


@assertion
def assert_undone(subject: Subject, *steps: str) -> None:
    """The `undo` of these steps ran and succeeded, in this order."""
    story = Story(subject)
    story.check(*steps)
    _assert_order([name for name, _ in story.events(EventKind.UNDONE)], steps, "was undone", story)


@assertion
def assert_compensated(subject: Subject, *steps: str) -> None:
    """The `compensate` of these steps ran and succeeded, in this order."""
    story = Story(subject)
    story.check(*steps)
    _assert_order([name for name, _ in story.events(EventKind.COMPENSATED)], steps, "was compensated", story)


def _ran(story: Story) -> list[Name]:
    """The steps whose body began and ended, in the order of their ends: a failed one need not have begun."""
    begun = {(run.execution_id, run.step) for _, run in story.runs if run.attempts > 0}
    return [name for name, event in story.events(*_ENDS) if (event.execution_id, event.step) in begun]


def _assert_order(found: Sequence[Name], wanted: Sequence[str], what: str, story: Story | None = None) -> None:
    place = -1
    for step in wanted:
        places = [index for index, name in enumerate(found) if name.fits(step) and index > place]
        order = f"{what}, in order: {listed(map(str, found))}"
        more = f". Steps: {story.states()}" if story is not None else ""
        assert places, f"expected {' then '.join(wanted)}; {order}{more}"
        place = places[0]


def _or_reactor(name: Name) -> str:
    return str(name) or "the reactor"


def _what(kind: str, primitive: str, key: str) -> str:
    return f"{primitive.replace('_', ' ')} {key!r}" if key else kind.replace("_", " ")


def _held(holder: str) -> str:
    return f", held by {holder}" if holder else ""
