"""Every pause there is between one try and the next: of a step, a look at a busy key, a message, a poll, a renewal.

Pure functions of what has happened so far; all results are seconds, none is negative, and each has an upper bound. Where a
delay is spread by chance, the chance comes in as an argument, uniform in 0..1, so that a seed repeats it.

| pause between | here | used by |
|---|---|---|
| attempts of a step | `retry_delay` | `runtime.steps`, `runtime.nested` |
| looks at a busy key, or at one's turn | `SnoozePolicy`, `look_in` | `runtime.contention`, `runtime.ordering` |
| looks at units whose results are awaited, parked | `result_looks` | `runtime.units` |
| the same in process, blocking | `result_poll` | `runtime.units` |
| messages of the sweep that had no effect | `RESENDS` | `workers.sweep` |
| a message and the sweep's look at its row | `message_grace` | `storage.store`, `runtime`, `operations` |
| writes on a new database connection | `RECONNECTS` | `storage.checkpoint` |
| renewals of a lease that the database refused | `lease_retry` | `runtime.lease` |
| renewals of a hold that Redis did not answer | `RENEWALS` | `coordination.keeper` |
| looks of an execution at a Redis or a database that is away | `OUTAGES` | `runtime.unavailable`, `runtime.escapes` |
| tries of a rollback to have a key from a Redis that is away | `redis_poll` | `runtime.cleanup` |
| looks of `handle.wait` and of `run_reactor --wait` | `handle_polls` | `runtime.outcome`, `management` |
| looks at a unit that another worker is ending | `UNWINDS` | `runtime.units` |
| tries to claim a question | `CLAIMS` | `runtime.pausing` |
"""

from __future__ import annotations

from dataclasses import dataclass

from reactor_coord.declare.options import MAX_SECONDS
from reactor_coord.declare.retry import Retry


def retry_delay(retry: Retry, failures: int, chance: float) -> float:
    """Seconds before the attempt that follows `failures` failed ones (from 1). `chance` is uniform in 0..1.

    `max_delay` is the longest wait there is, jitter included. Without one it is ten years: the due time stays a date.
    """
    longest = MAX_SECONDS if retry.max_delay is None else retry.max_delay
    growth = {"fixed": 1.0, "linear": float(failures), "exponential": 2.0 ** min(failures - 1, 60)}
    # Capped before the jitter too: else every wait past the cap would be the cap itself, and retries would come together.
    delay = min(retry.base_delay * growth[retry.backoff], longest)
    return min(delay * (1 + retry.jitter * (2 * chance - 1)), longest)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow by `factor` (1 or more) with every vain try, from `first` up to `longest` seconds."""

    first: float
    longest: float
    factor: float = 2.0

    def after(self, tries: int) -> float:
        """Seconds to pause after so many vain tries, from 1; what is less counts as 1."""
        if self.first <= 0 or self.factor == 1:
            return min(self.first, self.longest)
        steps = min(max(tries, 1) - 1, MANY)
        return min(self.first * self.factor**steps, self.longest)


MANY = 100
"""Tries after which no pause grows further: no power of a factor overflows, and every pause has met its bound long before."""

RESENDS = Backoff(10.0, 300.0)
"""After a message that had no effect: a long queue must not fill with copies of it."""

RENEWALS = Backoff(0.05, 1.0)
"""After a renewal of a hold, or another errand, that Redis did not answer."""

UNWINDS = Backoff(0.05, 0.5, factor=1.3)
"""Between looks at a unit that is asked to end, or that another worker rolls back."""

CLAIMS = Backoff(0.02, 0.1, factor=1.3)
"""Between tries to claim a question whose execution was taken up in vain and is about to pause again."""

OUTAGES = Backoff(1.0, 30.0)
"""Between looks of an execution that waits for Redis, or the database, to come back."""

RECONNECTS = (0.0, *(Backoff(0.5, 4.0).after(tries) for tries in range(1, 5)))
"""Before each try to write on a new connection what a lost one may have written: at once, then growing, 7.5 seconds in all."""


def handle_polls(interval: float) -> Backoff:
    """Between looks of a caller who waits for the end: from `interval` growing to half a second, and no more often than asked."""
    return Backoff(interval, max(interval, 0.5), factor=1.3)


def result_looks(base_delay: float, max_delay: float) -> Backoff:
    """Between looks of a parked execution at the units it waits for. It is woken by their end: a look is only the net."""
    return Backoff(base_delay, max_delay)


def result_poll(waited: float) -> float:
    """Between looks of a process that blocks for the results of units, after `waited` seconds: a tenth of those."""
    return _tenth(waited, 0.02, 0.5)


def redis_poll(patience: float) -> float:
    """Between tries of a rollback, which waits `patience` seconds in all, while Redis cannot be reached: a tenth of those."""
    return _tenth(patience, 0.01, 0.2)


def lease_retry(ttl: float) -> float:
    """Between renewals of a lease of `ttl` seconds that failed: a tenth of those, so that several fit into what is left."""
    return _tenth(ttl, 0.0, 1.0)


def _tenth(seconds: float, shortest: float, longest: float) -> float:
    return min(longest, max(shortest, seconds / 10))


def message_grace(sweep_interval: float) -> float:
    """From sending a row's message to the sweep's own look at that row: two sweeps, so that a healthy message comes first."""
    return 2.0 * sweep_interval


SECONDS_PER_PLACE = 0.1
"""How soon a line may be thought to move. A line of any length then asks for some tens of looks a second, not for all of
its members' every `max_delay`, which would keep the sweep from everything else that is due."""


@dataclass(frozen=True, slots=True)
class SnoozePolicy:
    """The safety net of a park: seconds to the first look, the longest, the jitter added, and the ceiling."""

    base_delay: float
    max_delay: float
    jitter: float
    max_attempts: int | None

    def delay(self, stuck: int, chance: float, *, place: int = 1) -> float:
        """Seconds to the next look after `stuck` looks (from 1) in which the line did not move.

        Who stands further back looks less often: it is nobody's turn but the first one's, and the looks of a long line
        would take the workers that are to drain it. Hundreds back it is less often than every `max_delay`.
        """
        patience = max(2.0 ** min(max(stuck, 1) - 1, 60), place)
        longest = max(self.max_delay, SECONDS_PER_PLACE * place)
        return min(self.base_delay * patience, longest) + self.jitter * chance

    def is_exhausted(self, stuck: int) -> bool:
        """Whether a refusal after `stuck` parks in an unmoved line is one too many."""
        return self.max_attempts is not None and stuck > self.max_attempts


AFTER_THE_END = 0.05
"""Seconds past the end of a hold at which it is looked at."""


def look_in(delay: float, ends_in: float | None, place: int) -> float:
    """Seconds to the next look: never past the end of a hold that nothing prolongs, each place in line a moment later.

    `delay` is the policy's; `ends_in` is None of a hold that is renewed, or whose end is not known.
    """
    if ends_in is None:
        return delay
    return min(delay, max(ends_in, 0.0) + AFTER_THE_END + SECONDS_PER_PLACE * max(place - 1, 0))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a waiter stood at a look: whose hold it met (by fence), its place, and how often nothing had moved."""

    fence: int
    place: int
    stuck: int

    def next(self, fence: int, place: int, *, early: bool) -> Standing:
        """Return the standing at the next refusal.

        A look that somebody else's wake brought about before its time is no look of ours: it does not count.
        """
        moved = fence != self.fence or (0 < place < self.place)
        return Standing(fence, place, 1 if moved else self.stuck + (0 if early else 1))
