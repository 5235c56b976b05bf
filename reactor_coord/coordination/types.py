"""What is asked of a primitive and what it answers. Owners, claims and keys are strings here; executions are not known.

Times are seconds as `float` unless the name says otherwise; instants are Unix seconds of the *server's* clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Requester:
    """Who wants a key.

    `owner` is the tree (the root execution's id, or a direct call's own); re-entrancy is by owner. `claim` is the lease
    of the process that runs it; owner and claim together open a hold. `wake` is the name a release hands back for a
    parked waiter (empty for one that blocks). `renews`: whether what it gets will be prolonged while its work runs. The rest is
    for people who look.
    """

    owner: str
    claim: str
    wake: str = ""
    execution: str = ""
    reactor: str = ""
    step: str = ""
    priority: int = 0
    renews: bool = True


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a key, as the refused one and the operator see it."""

    owner: str
    claim: str
    state: str  # held | granted | parked
    fence: int
    since: float
    remaining: float  # seconds until it lapses unless renewed
    execution: str = ""
    reactor: str = ""
    step: str = ""
    count: int = 1
    renewed_to: float | None = None  # seconds to which it is prolonged each third of them, 0: never; None: not known

    @property
    def ends_in(self) -> float | None:
        """Seconds until it is over, where nothing prolongs it; None while it is renewed.

        A grant and a parked hold end by themselves. So does a held one whose holder said that it does not renew it, or who has
        missed a renewal: alive, it prolongs the lease when two thirds are left.
        """
        if self.state != "held" or self.renewed_to == 0:
            return self.remaining
        is_late = self.renewed_to is not None and self.remaining < self.renewed_to / 2
        return self.remaining if is_late else None


@dataclass(frozen=True, slots=True)
class HeldKey:
    """One key taken. `how`: free | granted | parked | reentered; `granted_at` and `released_by` tell of a hand-off."""

    key: str
    fence: int
    how: str
    since: float
    granted_at: float | None = None
    released_by: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """All the keys of one acquisition, under one token. Given back, renewed and parked as one.

    `asked_at` is `time.monotonic()` of this process when the request was sent: the lease is known to stand until
    `asked_at + ttl`.
    """

    keys: tuple[HeldKey, ...]
    token: str
    who: Requester
    ttl: float
    primitive: str = "lock"
    asked_at: float = field(default=0.0, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys, sorted, as they were taken."""
        return tuple(held.key for held in self.keys)


@dataclass(frozen=True, slots=True)
class Refused:
    """Not taken; nothing of it is held. `key` is the first busy one; `place` counts from 1 in its line (0: not joined).

    `is_full`: as many as `max_waiting` allows stood in line already, so it was not joined. `fence` is the last one given for
    that key: it tells whether anybody was admitted since. Of a semaphore `in_use` slots are taken, and `holder` is one of those.
    """

    key: str
    holder: Holder | None
    place: int
    waiting: int
    wakes: tuple[str, ...] = ()
    busy: tuple[str, ...] = field(default_factory=tuple)
    primitive: str = "lock"
    is_full: bool = False
    fence: int = 0
    in_use: int = 1
