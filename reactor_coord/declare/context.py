"""What a body may ask and say while it runs: the shape of the context, and the four verdicts.

The runtime makes the context; here is what an author may rely on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from reactor_coord.results import Decided, Failure, Halt, Skipped, Success


class Verdicts:
    """End the step from any depth of its body. A body's own `except Exception` cannot swallow them."""

    def fail(self, error: str | BaseException, retryable: bool = True) -> NoReturn:
        """This step fails. With `retryable=False` no retry is spent on it: what was done is rolled back at once."""
        raise Decided(Failure(error, retryable))

    def skip(self, value: Any = None, reason: str | None = None) -> NoReturn:
        """This step is skipped, the workflow goes on; whoever reads its value reads `value`."""
        raise Decided(Skipped(value, reason))

    def halt(self, value: Any = None, reason: str | None = None) -> NoReturn:
        """The whole execution stops here, cleanly; nothing is undone."""
        raise Decided(Halt(value, reason))

    def succeed(self, value: Any = None) -> NoReturn:
        """This step is done, with this value."""
        raise Decided(Success(value))


class Context(Protocol):
    """`self.context` in a step; the parameter `context` of an inline one, which has the verdicts too.

    `attempt` counts real tries from 1; `contention_attempts` the parks. `idempotency_key` is one and the same over
    retries and redeliveries of this step of this execution. `results` maps step name to value. `holds` maps a key to its
    hold (`key`, `primitive`, `fencing_token`, `lost`).
    """

    @property
    def execution_id(self) -> str: ...
    @property
    def root_id(self) -> str: ...
    @property
    def reactor(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def contention_attempts(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def results(self) -> Mapping[str, Any]: ...
    @property
    def holds(self) -> Mapping[str, Any]: ...
    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[Any]: ...

    def fence(self, key: str) -> int:
        """The fencing token of the hold on `key`: it only ever grows, so a store can refuse writes with an older one."""

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Tell how far the body is."""

    def fail(self, error: str | BaseException, retryable: bool = True) -> NoReturn: ...
    def skip(self, value: Any = None, reason: str | None = None) -> NoReturn: ...
    def halt(self, value: Any = None, reason: str | None = None) -> NoReturn: ...
    def succeed(self, value: Any = None) -> NoReturn: ...
