"""What a body may ask and say while it runs: the shape of the context, and the four verdicts.

The runtime makes the context; here is what an author may rely on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Protocol

from reactor_coord.results import Decided, Failure, Halt, Skipped, Success


class Verdicts:
    """End the step from any depth of its body, or of its guard. An `except Exception` on the way cannot swallow them."""

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
        """This step is done, with this value. In a guard, without a value: the guard has passed, and `run` follows."""
        raise Decided(Success(value))


class Held(Protocol):
    """One hold of `context.holds`; `lost` is live."""

    @property
    def key(self) -> str: ...
    @property
    def primitive(self) -> str: ...
    @property
    def fencing_token(self) -> int: ...
    @property
    def lost(self) -> bool: ...


class Holds(Protocol):
    """What the execution holds, by primitive and key: `holds["lock", "acct:1"]`.

    By the key alone it finds the lock of that key, or its only hold of any primitive.
    """

    def __getitem__(self, name: tuple[str, str] | str, /) -> Held: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[tuple[str, str]]: ...
    def __len__(self) -> int: ...


class Context(Protocol):
    """`self.context` in a step; the parameter `context` of an inline one, which has the verdicts too.

    `attempt` counts real tries from 1; `contention_attempts` the parks. `idempotency_key` is one and the same over
    retries and redeliveries of this step of this execution. `results` maps step name to value.
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
    def holds(self) -> Holds: ...
    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[Any]: ...

    def fence(self, key: str, primitive: str | None = None) -> int:
        """The fencing token of the hold on `key`: it only ever grows, so a store can refuse writes with an older one.

        The lock's token, or that of the only hold on `key`, unless `primitive` says which. Raises `KeyError` where there is
        no such hold; a period has no token.
        """

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Tell how far the body is."""

    def fail(self, error: str | BaseException, retryable: bool = True) -> NoReturn: ...
    def skip(self, value: Any = None, reason: str | None = None) -> NoReturn: ...
    def halt(self, value: Any = None, reason: str | None = None) -> NoReturn: ...
    def succeed(self, value: Any = None) -> NoReturn: ...
