"""How often a failing step is tried again, as a value. Delays are computed by the engine; contention never spends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reactor_coord.declare import options
from reactor_coord.declare.keywords import checked_init
from reactor_coord.declare.shown import shown
from reactor_coord.errors import (
    CoordinationKeyError,
    DefinitionError,
    GuardError,
    HandOffRefused,
    InputValidationError,
    ReactorFailed,
    WorkerLost,
)

NEVER_RETRIED = (
    InputValidationError,
    CoordinationKeyError,
    DefinitionError,
    GuardError,
    HandOffRefused,
    ReactorFailed,
    WorkerLost,
)
"""A second attempt meets the same thing, whatever `on` names."""

BACKOFFS = ("exponential", "linear", "fixed")


@checked_init
@dataclass(frozen=True, slots=True)
class Retry:
    """Try a failing step again.

    `max_attempts` counts the first try too (1: never again). The n-th wait is `base_delay * 2**(n-1)` (exponential),
    `base_delay * n` (linear) or `base_delay` (fixed), in seconds, at most `max_delay`; `jitter` is the fraction (0 to 1)
    of it that is left to chance, within `max_delay`. `on`: the exceptions worth another try; anything else fails the step
    at once, a failure that was given as a text (`self.fail("no")`) too.
    """

    max_attempts: int
    backoff: str = "exponential"
    base_delay: float = 1.0
    max_delay: float | None = None
    jitter: float = 0.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        options.count("Retry", "max_attempts", self.max_attempts)
        options.choice("Retry", "backoff", self.backoff, BACKOFFS)
        object.__setattr__(self, "base_delay", options.seconds("Retry", "base_delay", self.base_delay))
        object.__setattr__(self, "max_delay", options.optional_seconds("Retry", "max_delay", self.max_delay))
        object.__setattr__(self, "jitter", options.seconds("Retry", "jitter", self.jitter))
        if self.jitter > 1:
            raise options.bad("Retry", "jitter", self.jitter, "is a fraction of the delay, from 0 to 1.")
        object.__setattr__(self, "on", _exceptions(self.on))
        if self.max_delay is not None and self.max_delay < self.base_delay:
            rule = (
                f"is shorter than base_delay ({self.base_delay:g}), so every wait would be cut to it. Lower base_delay."
            )
            raise options.bad("Retry", "max_delay", self.max_delay, rule)

    def covers(self, error: BaseException | str) -> bool:
        """Whether this failure is worth another try. A text is no exception: it is, unless `on` was narrowed to some."""
        return isinstance(error, self.on) if isinstance(error, BaseException) else Exception in self.on


def _exceptions(value: Any) -> tuple[type[Exception], ...]:
    kinds = tuple(value) if isinstance(value, Sequence) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise DefinitionError(
                f"Retry(on={shown(value)}): on takes exception classes, and {shown(kind)} is not one."
            )
        if issubclass(kind, NEVER_RETRIED):
            raise DefinitionError(
                f"Retry(on={shown(value)}): {kind.__name__} is never retried, since a second attempt would meet it again. "
                "Leave it out."
            )
    if not kinds:
        raise DefinitionError("Retry(on=()): on names no exception, so nothing would ever be retried; leave Retry out.")
    return kinds
