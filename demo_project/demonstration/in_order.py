"""A book whose lines are written in the order in which the writers came to it, whatever order they set out in."""

from __future__ import annotations

import random

from demo_project.demonstration import sabotage
from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage, finished
from demo_project.shipping.models import Entry
from demo_project.shipping.reactors import PostEntry
from reactor_coord import ExecutionHandle
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

ENTRIES = 24
FIRST_PACE_SECONDS = 1.0
PACE_SECONDS = 0.01
PROMISE = f"{ENTRIES} writers of one book: written in the order in which they came, no number left out or given twice"


def show(stage: Stage) -> None:
    """Send the writers one by one, each when the one before stands in the line; then read the book. Raises ClaimBroken.

    The first thinks so long that the others come meanwhile. So who came in which order is known here, by the sending.
    """
    book = f"daybook-{stage.label}"
    sent = [f"page {n}" for n in random.sample(range(100, 1000), ENTRIES)]
    handles: list[ExecutionHandle] = []
    for what in sent:
        pace = PACE_SECONDS if handles else FIRST_PACE_SECONDS
        handle = PostEntry.options(tags=stage.tags()).enqueue(book=book, what=what, pace=pace)
        stage.until(lambda handle=handle: _has_come(stage, handle), f"the arrival of {what}")  # type: ignore[misc]
        handles.append(handle)
    waiting = Execution.objects.filter(pk__in=[handle.id for handle in handles], status=ExecutionStatus.PARKED).count()
    stage.screen.say(
        f"{ENTRIES} writers came one after the other; {waiting} of them parked in the line, in no worker process"
    )
    for handle in handles:
        row = stage.until(lambda handle=handle: finished(handle.id), f"the end of {handle.id}")  # type: ignore[misc]
        claim(row.status == ExecutionStatus.COMPLETED, f"a writer ended {row.status}: {row.failure}")
    sabotage.book(book)
    check(book, sent)
    stage.screen.say(f"the book has 1 to {ENTRIES}, no gap, no number twice, in the order of arrival")
    stage.browse.append(("waited for its turn", handles[1].id))


def check(book: str, sent: list[str]) -> None:
    """Whether the book has what was sent, in that order, numbered from 1. Raises ClaimBroken."""
    written = list(Entry.objects.filter(book=book).order_by("number", "pk").values_list("number", "what"))
    numbers = [number for number, _ in written]
    claim(numbers == list(range(1, len(sent) + 1)), f"the numbers of the book are {numbers}")
    claim([what for _, what in written] == sent, "the book is not in the order in which the writers came")


def _has_come(stage: Stage, handle: ExecutionHandle) -> bool | None:
    """Whether it stands in the line, is at the head of it, or was so quick that it is over."""
    row = Execution.objects.get(pk=handle.id)
    if row.status == ExecutionStatus.PARKED or row.is_terminal:
        return True
    return stage.mark("begin", "enter", handle.id) is not None or None
