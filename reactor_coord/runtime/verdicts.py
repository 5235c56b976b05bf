"""How a tree leaves its way forward other than by its end: the signals between the performers and the runner.

They derive from `BaseException`: nothing an author writes can swallow them. And how an error is told: its type, its
message with redacted values masked, the last frames of its traceback.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reactor_coord.engine import records
from reactor_coord.errors import ReactorFailed
from reactor_coord.storage import codec

if TYPE_CHECKING:
    from reactor_coord.engine.settlement import Settlement
    from reactor_coord.runtime.tree import Frame

INTERRUPTIONS: list[type[BaseException]] = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
"""What ends the process or the caller's patience, not the step: no rollback. Workers add their own."""

MESSAGE_LIMIT = 4000
TRACEBACK_FRAMES = 20


class StepFailed(BaseException):
    """A step, or a reactor's own coordination (`step` is empty), failed for good."""

    def __init__(self, frame: Frame, step: str, settlement: Settlement) -> None:
        super().__init__(step)
        self.frame = frame
        self.step = step
        self.settlement = settlement


class Halted(BaseException):
    """A step stops the whole tree cleanly."""

    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(reason)
        self.value = value
        self.reason = reason


class RefusedAtTheDoor(Halted):
    """A reactor's own declarations do not let it begin: a root, or a unit, halts; where it is composed, its step is skipped."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class HandedOver(BaseException):
    """From here on a worker runs it."""


class Cancelled(BaseException):
    """Somebody asked for the end; consumed at a step boundary."""


def is_interruption(error: BaseException) -> bool:
    """Whether this ends the process or the caller's patience rather than the step."""
    return isinstance(error, tuple(INTERRUPTIONS))


def ends_the_process(error: BaseException, *, in_worker: bool) -> bool:
    """Whether it is to leave an author's code as it is. In a worker, what that code raised by itself is a failure."""
    return is_interruption(error) and not (in_worker and is_raised_by_itself(error))


def is_raised_by_itself(error: BaseException) -> bool:
    """Whether a body in a worker raised what usually ends a process, with no signal received: its own failure, then.

    What a signal's handler raises has that handler's frame innermost, in the code of the worker.
    """
    if not isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        return False
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    module = str(frame.tb_frame.f_globals.get("__name__", "")) if frame is not None else ""
    return module.partition(".")[0] not in WORKER_CODE


WORKER_CODE = frozenset({"celery", "billiard", "kombu", "gevent", "eventlet", "greenlet"})
"""Packages whose code raises in a body what a signal, or a pool that goes down, means."""


def message_of(error: BaseException | str | None, secrets: Iterable[str] = ()) -> str:
    """Return the error's message, bounded, redacted values masked; even an error that cannot print itself has one."""
    try:
        message = str(error) if error is not None else ""
    except BaseException:  # noqa: BLE001 - an author's __str__ must not cost the failure it describes
        message = f"<{type(error).__name__} whose message cannot be printed>"
    for secret in secrets:
        message = message.replace(secret, "[redacted]")
    message = message.replace("\x00", "\ufffd")
    return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + " [truncated]"


def type_of(error: BaseException | str | None) -> str:
    """Return the name of the error's type; a failure given as text is a `Failure`."""
    if isinstance(error, ReactorFailed) and error.failure is not None:
        return str(error.failure.error_type)  # a unit's: the type it failed with, in its own process
    return type(error).__name__ if isinstance(error, BaseException) else "Failure"


def described(
    error: BaseException | str | None, *, began: bool, retryable: bool, secrets: Iterable[str]
) -> records.StepError:
    """Describe an error for the row of its step run."""
    frames: list[str] = []
    if isinstance(error, BaseException) and error.__traceback__ is not None:
        summary = traceback.extract_tb(error.__traceback__)[-TRACEBACK_FRAMES:]
        frames = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in summary]
    return records.StepError(
        type_of(error),
        message_of(error, secrets),
        tuple(frames),
        began=began,
        retryable=retryable,
        cause=cause_of(error, secrets),
    )


def cause_of(error: BaseException | str | None, secrets: Iterable[str] = ()) -> str:
    """Return type and message of the error that this one was raised from, or an empty text."""
    cause = error.__cause__ if isinstance(error, BaseException) else None
    return f"{type_of(cause)}: {message_of(cause, secrets)}" if cause is not None else ""


def secrets_of(arguments: Mapping[str, Any], redacted: Iterable[str]) -> list[str]:
    """Return the texts of redacted values, for masking; very short ones would mask half of any message."""
    texts = (_text_of(arguments[name]) for name in redacted if arguments.get(name) is not None)
    return sorted((text for text in texts if len(text) > 3), key=len, reverse=True)


def _text_of(value: Any) -> str:
    """The value as a message would show it; a value that cannot be shown stands in no message, and masks nothing."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an author's __str__ must not cost the failure it is masked in
        return ""


def displayed(arguments: Mapping[str, Any], redacted: frozenset[str]) -> Any:
    """Return arguments for people; what cannot be encoded is named by its type."""
    try:
        return codec.display(codec.encode(dict(arguments), redacted))
    except Exception:  # noqa: BLE001 - only a description: the failure it belongs to must not be lost over it
        return {name: f"<{type(value).__name__}>" for name, value in arguments.items()}
