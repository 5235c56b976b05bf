"""A warehouse with three pickers: however many orders come, no fourth is ever in it."""

from __future__ import annotations

from demo_project.demonstration import rush, sabotage
from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage
from demo_project.payments import journal
from demo_project.shipping.reactors import PICKERS
from reactor_coord.models import StepRun

PROMISE = f"{rush.ORDERS * rush.ITEMS} things to pick, {PICKERS} pickers: a semaphore"


def show(stage: Stage) -> None:
    """Count who was in the warehouse at once, by the pickers' own notes. Raises ClaimBroken."""
    picks = sabotage.picks(rush.of(stage).picks, PICKERS)
    seconds = check(picks, rush.ORDERS * rush.ITEMS)
    times = ", ".join(f"{crowd} for {seconds[crowd]:.2f} s" for crowd in sorted(seconds) if crowd)
    stage.screen.say(f"{len(picks)} picks, never more than {max(seconds)} at once: {times}")
    elements = StepRun.objects.filter(execution__parent__in=rush.of(stage).executions, step="reserved")
    parked = elements.filter(contention_attempts__gt=0).count()
    stage.screen.say(f"{parked} of them found it full and parked; no worker process waited for a place")


def check(picks: list[journal.Span], expected: int) -> dict[int, float]:
    """For how long how many were inside. Raises ClaimBroken when those were too many, or not all came."""
    seconds = seconds_by_crowd(picks)
    most = max(seconds, default=0)
    claim(most <= PICKERS, f"{most} pickers were in the warehouse at once; it has {PICKERS}")
    claim(len(picks) == expected, f"there were {len(picks)} picks instead of {expected}")
    return seconds


def seconds_by_crowd(spans: list[journal.Span]) -> dict[int, float]:
    """For how long how many of them ran at once."""
    moments = sorted([(span.begin, 1) for span in spans] + [(span.end, -1) for span in spans])
    inside, since, seconds = 0, 0.0, dict[int, float]()
    for at, change in moments:
        seconds[inside] = seconds.get(inside, 0.0) + (at - since if inside else 0.0)
        inside, since = inside + change, at
    return seconds
