"""What a body may hand back, and the signal by which it may do so from any depth.

A body returns one of these, or a plain value (a success), or raises. `Decided` carries one through frames that know
nothing of it: it derives from `BaseException`, so that a body's own `except Exception` cannot swallow the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Success:
    """The step succeeded with `value`."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The step failed: a sentence or an exception. `retryable=False` spends no retry and rolls back at once."""

    error: str | BaseException
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class Skipped:
    """The step did nothing and the workflow goes on; whoever reads its value reads `value`."""

    value: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The whole execution stops here, cleanly: nothing is undone, and its value is `value`."""

    value: Any = None
    reason: str | None = None


Result: TypeAlias = Success | Failure | Skipped | Halt


class Decided(BaseException):
    """Raised by `self.fail`, `self.skip`, `self.halt` and `self.succeed`; `.result` is what was decided."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result
