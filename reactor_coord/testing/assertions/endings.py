"""How an execution ended, or where it stands: completed, failed, halted, paused, cancelled, rolled back, in a deadlock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reactor_coord.engine.records import Failure, RollbackFailure, StepRollbackFailure
from reactor_coord.engine.states import ROLLED_BACK, EventKind, ExecutionStatus, StepStatus
from reactor_coord.errors import DeadlockDetected, InputValidationError
from reactor_coord.testing.assertions.story import Story, assertion, listed
from reactor_coord.testing.naming import Name

if TYPE_CHECKING:
    from reactor_coord.models import Execution
    from reactor_coord.testing.assertions.story import Subject


@assertion
def assert_completed(subject: Subject) -> None:
    """All its steps are done."""
    _assert_status(Story(subject), ExecutionStatus.COMPLETED)


@assertion
def assert_failed(
    subject: Subject,
    step: str | None = None,
    error: type[BaseException] | str | None = None,
    message: str | None = None,
) -> None:
    """It failed: at that step, with an error of that class (or of that class name), with that text in its message.

    An empty `step` is the reactor itself: its own declarations, or the value that it returns.
    """
    story = Story(subject)
    story.check(step or "")
    _assert_status(story, ExecutionStatus.FAILED)
    failure = Failure.from_json(story.row.failure)
    kind = error if isinstance(error, str | None) else error.__name__
    is_so = (
        (step is None or _is_at(story, failure, step))
        and kind in (None, failure.error_type)
        and (message is None or message in failure.message)
    )
    wanted = " ".join(
        part
        for part in (
            f"at {step or 'the reactor itself'}" if step is not None else "",
            f"with {kind}" if kind else "",
            f"saying {message!r}" if message else "",
        )
        if part
    )
    assert is_so, f"expected it to fail {wanted}; it failed at {_told(failure)}"


@assertion
def assert_halted(subject: Subject, step: str | None = None, reason: str | None = None) -> None:
    """A step, or the reactor's own declarations, ended it cleanly: at that step, for a reason that has this text in it."""
    story = Story(subject)
    story.check(step or "")
    _assert_status(story, ExecutionStatus.HALTED)
    at = [name for name, _ in story.events(EventKind.STEP_HALTED)]
    if step is not None:
        fits = any(name.fits(step) for name in at) if step else not at
        assert fits, f"expected it to be halted at {step or 'its own door'}; it was at {listed(map(str, at))}"
    said = story.row.reason or "no reason given"
    assert reason is None or reason in story.row.reason, (
        f"expected it to be halted because of {reason!r}; it was: {said}"
    )


@assertion
def assert_paused(subject: Subject, step: str | None = None, correlation_id: str | None = None) -> None:
    """It is paused now, at that `interrupt`, and that correlation id answers it."""
    story = Story(subject)
    story.check(step or "")
    asking = [(name, wait) for name, row, wait in story.waits() if row.status == ExecutionStatus.PAUSED]
    fitting = [
        wait
        for name, wait in asking
        if (step is None or name.fits(step)) and correlation_id in (None, wait.correlation_id)
    ]
    wanted = "to be paused" + (f" at {step}" if step else "")
    wanted += f", to be answered by {correlation_id!r}" if correlation_id else ""
    found = listed(f"{name}, to be answered by {wait.correlation_id!r}" for name, wait in asking)
    assert fitting, f"expected it {wanted}; it {_stands(story.row)}. Paused are: {found}"


@assertion
def assert_cancelled(subject: Subject, reason: str | None = None) -> None:
    """It was cancelled and what it had done is undone; with `reason`, for one that has this text in it."""
    story = Story(subject)
    _assert_status(story, ExecutionStatus.CANCELLED)
    said = story.row.reason or story.row.cancel_reason or "no reason given"
    assert reason is None or reason in said, f"expected it to be cancelled because of {reason!r}; it was: {said}"


@assertion
def assert_reverted(subject: Subject, reason: str | None = None) -> None:
    """It had ended and was undone since, wholly; with `reason`, for one that has this text in it."""
    story = Story(subject)
    _assert_status(story, ExecutionStatus.REVERTED)
    said = story.row.reason or story.row.cancel_reason or "no reason given"
    assert reason is None or reason in said, f"expected it to be reverted because of {reason!r}; it was: {said}"


@assertion
def assert_rolled_back(subject: Subject, *steps: str) -> None:
    """It failed, was cancelled or reverted, every cleanup was done; these steps, if any are named, were undone or compensated."""
    story = Story(subject)
    story.check(*steps)
    over = story.row.status in ROLLED_BACK
    assert over, f"expected a rolled back execution; it {_stands(story.row)}"
    left = [_cleanup(name, failure) for name, failure in _left(story)]
    assert not left, f"the rollback is incomplete: {'; '.join(left)}"
    done = {StepStatus.UNDONE, StepStatus.COMPENSATED}
    missing = [step for step in steps if not any(name.fits(step) and run.status in done for name, run in story.runs)]
    assert not missing, f"expected {', '.join(missing)} to be undone or compensated; step runs: {story.states()}"


@assertion
def assert_rollback_failed(
    subject: Subject, step: str, *, kind: str | None = None, reason: str | None = None, key: str | None = None
) -> None:
    """A cleanup of that step did not happen, and the execution says so.

    `kind`: `"undo"` or `"compensate"`. `reason`: `"coordination_unavailable"` (it could not have its key), `"raised"` or
    `"returned_failure"`. `key`: the key that it could not have.
    """
    story = Story(subject)
    story.check(step)
    left = _left(story)
    fitting = [
        failure
        for name, failure in left
        if name.fits(step)
        and kind in (None, failure.kind)
        and reason in (None, failure.reason)
        and key in (None, failure.key)
    ]
    wanted = f"the {kind or 'cleanup'} of {step} to be left undone"
    wanted += f" as {reason}" if reason else ""
    wanted += f" for the key {key!r}" if key else ""
    found = listed(_cleanup(name, failure) for name, failure in left)
    assert fitting, f"expected {wanted}; left undone are: {found}. The execution {_stands(story.row)}"


@assertion
def assert_invalid(subject: Subject | InputValidationError, *fields: str) -> None:
    """The inputs of a reactor (the error itself) or of a step (an execution that failed) broke their declaration.

    With `fields`, in exactly these inputs, in any order.
    """
    if isinstance(subject, InputValidationError):
        found, said = set(subject.fields), str(subject)
    else:
        story = Story(subject)
        _assert_status(story, ExecutionStatus.FAILED)
        failure = Failure.from_json(story.row.failure)
        is_so = failure.error_type == InputValidationError.__name__
        assert is_so, f"expected it to fail for invalid inputs; it failed at {_told(failure)}"
        found, said = set(_fields_in(failure.message)), failure.message
    assert not fields or found == set(fields), f"expected {', '.join(sorted(fields))} to be invalid; it said: {said}"


@assertion
def assert_deadlock(subject: Subject, *keys: str, failed: bool | None = None) -> None:
    """It was part of a deadlock over these keys. `failed`: whether it is the one that failed of it, so that others go on."""
    story = Story(subject)
    rings = [tuple(event.data.get("cycle", ())) for _, event in story.events(EventKind.DEADLOCK)]
    assert rings, f"expected it to be part of a deadlock; none was found. The execution {_stands(story.row)}"
    told = "; ".join(" -> ".join(ring) for ring in rings)
    missing = [key for key in keys if not any(repr(key) in link for ring in rings for link in ring)]
    assert not missing, f"expected a deadlock over {', '.join(map(repr, missing))}; it was: {told}"
    gave_up = (
        Failure.from_json(story.row.failure).error_type == DeadlockDetected.__name__ if story.row.failure else False
    )
    if failed is not None:
        wanted = "the one that fails of the deadlock" if failed else "one that goes on"
        assert gave_up is failed, f"expected it to be {wanted}; it {_stands(story.row)}. The deadlock: {told}"


def _assert_status(story: Story, wanted: ExecutionStatus) -> None:
    is_so = story.row.status == wanted
    assert is_so, f"expected it to be {wanted}; it {_stands(story.row)}. Steps: {story.states()}"


def _stands(row: Execution) -> str:
    """`is parked`, `failed at Payment.charge: LockContended: ...`."""
    if row.status == ExecutionStatus.FAILED and row.failure:
        return f"failed at {_told(Failure.from_json(row.failure))}"
    return f"is {row.status.replace('_', ' ')}" + (f" ({row.reason})" if row.reason else "")


def _told(failure: Failure) -> str:
    return f"{failure.where}: {failure.error_type}: {failure.message}"


def _is_at(story: Story, failure: Failure, step: str) -> bool:
    """Whether it is that step, whose name another reactor's step may have too, that failed."""
    if not step or not failure.step:
        return step == failure.step
    failed = [name for name, event in story.events(EventKind.STEP_FAILED) if event.step == failure.step]
    return any(name.fits(step) for name in failed) or step == failure.step


def _left(story: Story) -> list[tuple[Name, RollbackFailure]]:
    """The cleanups that did not happen. Of what a step lists of the units below it, most is in their own rows as well."""
    return [
        (name, failure)
        for name, run in story.runs
        if run.rollback_failure
        for noted in [StepRollbackFailure.from_json(run.rollback_failure)]
        for failure in noted.failures
        if not noted.of_units or not failure.step
    ]


def _cleanup(name: Name, failure: RollbackFailure) -> str:
    key = f" for the key {failure.key!r}" if failure.key else ""
    return f"{failure.kind or 'cleanup'} of {name} ({failure.reason}{key}: {failure.message})"


def _fields_in(message: str) -> Iterator[str]:
    """The names in the sentence that `InputValidationError` makes: a failure read from its row has nothing else."""
    problems = message.partition(": ")[2]
    for problem in problems.split("; "):
        if found := re.match(r"(\w+): ", problem):
            yield found[1]
