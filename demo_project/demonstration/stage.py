"""What every part of the demo works with: accounts of its own, the journal of the bodies, the screen, the worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.demonstration.screen import Screen
from demo_project.demonstration.services import Worker
from demo_project.payments import journal, ledger
from demo_project.payments.models import Account
from reactor_coord.models import Execution, StepRun

if TYPE_CHECKING:
    from demo_project.demonstration.rush import Rush

Found = TypeVar("Found")

LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 40.0


@dataclass(slots=True)
class Stage:
    """One run of the demo. `label` keeps its accounts and executions apart from those of other runs."""

    screen: Screen
    marks: Path
    """The journal that the bodies write."""
    worker: Worker
    label: str
    browse: list[tuple[str, UUID]] = field(default_factory=list)
    """Executions worth a look afterwards, with why."""
    rush: Rush | None = None
    """The load of the second story, once it has happened."""

    def account(self, name: str, opening: Decimal) -> Account:
        """A new account with money in it."""
        return ledger.open_account(f"{name}-{self.label}", opening)

    def tags(self, show: str = "") -> dict[str, str]:
        """What marks an execution as this run's; with `show`, as one that is worth a look on the site."""
        return {"demo": self.label, "show": show} if show else {"demo": self.label}

    def span(self, body: str, execution: UUID) -> journal.Span:
        """When that body of that execution ran. Raises ClaimBroken unless it ran exactly once, to its end."""
        found = [each for each in self.spans(body) if each.execution == str(execution)]
        claim(len(found) == 1, f"the body of {body} of {execution} ran {len(found)} times instead of once")
        return found[0]

    def spans(self, body: str) -> list[journal.Span]:
        """All bodies of that name so far."""
        return [each for each in journal.spans(journal.read(self.marks)) if each.body == body]

    def mark(self, mark: str, body: str, execution: UUID | None) -> journal.Mark | None:
        """The first such line of the journal, if there is one yet."""
        wanted = (mark, body, str(execution))
        marks = journal.read(self.marks)
        return next((each for each in marks if (each.mark, each.body, each.execution) == wanted), None)

    def until(self, look: Callable[[], Found | None], what: str, seconds: float = PATIENCE_SECONDS) -> Found:
        """What `look` finds, once it finds something; ClaimBroken, saying `what` did not come, after `seconds`."""
        deadline = time.monotonic() + seconds
        while (found := look()) is None:
            self.worker.check()
            if time.monotonic() > deadline:
                raise ClaimBroken(
                    f"{what} did not come within {seconds:g} s; the worker's log:\n{self.worker.log_end()}"
                )
            time.sleep(LOOK_SECONDS)
        return found


def step_run(execution: UUID, step: str) -> StepRun:
    """The row of one step."""
    return StepRun.objects.get(execution_id=execution, step=step)


def finished(execution: UUID) -> Execution | None:
    """The execution, once it is over."""
    row = Execution.objects.get(pk=execution)
    return row if row.is_terminal else None


def milliseconds(seconds: float) -> str:
    """A short time in words."""
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
