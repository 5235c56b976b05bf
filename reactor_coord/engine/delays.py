"""How long until the next attempt, and until the next look at a busy key. Chance comes in as an argument."""

from __future__ import annotations

from dataclasses import dataclass

from reactor_coord.declare.retry import Retry


def retry_delay(retry: Retry, failures: int, chance: float) -> float:
    """Seconds before the attempt that follows `failures` failed ones (from 1). `chance` is uniform in 0..1."""
    growth = {"fixed": 1.0, "linear": float(failures), "exponential": 2.0 ** min(failures - 1, 60)}
    delay = retry.base_delay * growth[retry.backoff]
    if retry.max_delay is not None:
        delay = min(delay, retry.max_delay)
    return delay * (1 + retry.jitter * (2 * chance - 1))


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
