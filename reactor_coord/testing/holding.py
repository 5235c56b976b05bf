"""Hold a key as somebody else would, so that what you test meets contention."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from reactor_coord.coordination import locks, semaphores
from reactor_coord.coordination.types import Refused, Requester, Taken
from reactor_coord.runtime.dispatch import wake


@dataclass(slots=True)
class Held:
    """A key held by an owner that is no execution."""

    key: str
    taken: Taken
    is_released: bool = field(default=False)

    @property
    def owner(self) -> str:
        """What others are told holds it."""
        return self.taken.who.owner

    @property
    def fence(self) -> int:
        """The fencing token of this hold."""
        return self.taken.keys[0].fence

    def release(self) -> None:
        """Give it back now, and wake whoever waits for it, as a step's end would."""
        if not self.is_released:
            self.is_released = True
            holdings = semaphores() if self.taken.primitive == "semaphore" else locks()
            wake(holdings.give(self.taken))


@contextmanager
def hold(key: str, primitive: str = "lock", ttl: float = 60.0, limit: int = 1) -> Iterator[Held]:
    """Hold `key` inside the block, as another owner. It is not renewed: after `ttl` seconds it lapses, as a dead holder's.

    Of a semaphore it is one slot of `limit`.

    Raises:
        AssertionError: Somebody holds it already; the message names the holder.
        ValueError: A primitive other than `"lock"` and `"semaphore"`.
    """
    if primitive not in {"lock", "semaphore"}:
        raise ValueError(f"testing.hold knows the primitives 'lock' and 'semaphore', not {primitive!r}")
    me = Requester(owner=f"testing-{uuid.uuid4().hex}", claim=uuid.uuid4().hex, reactor="testing.hold")
    if primitive == "lock":
        answer = locks().take([key], me, ttl=ttl, join=False)
    else:
        answer = semaphores().take(key, me, limit=limit, ttl=ttl, join=False)
    if isinstance(answer, Refused):
        raise AssertionError(f"testing.hold could not take {key!r}: it is held by {answer.holder}")
    held = Held(key, answer)
    try:
        yield held
    finally:
        held.release()
