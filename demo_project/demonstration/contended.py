"""Two executions in the worker want one account: the later one parks, and the release of the other wakes it."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.demonstration.stage import Stage, finished, milliseconds, step_run
from demo_project.payments.reactors import Payment
from reactor_coord.engine.states import EventKind, ExecutionStatus
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.operations import views

PACE_SECONDS = 0.4
SOON_SECONDS = 1.0
"""Far above what a wake takes and far below what a poll would: the next look of a parked execution is 5 s away."""
WARM_UP_PAYMENTS = 8
PROMISE = "two enqueued runs on one account: one parks, is woken by the release, and spends no retry"


def show(stage: Stage) -> None:
    """Enqueue both, watch the park, then read the trace. Raises ClaimBroken."""
    _warm_up(stage)
    account = stage.account("contended", Decimal("100.00"))
    payment = {"account_id": account.pk, "amount": Decimal("10.00"), "pace": PACE_SECONDS}
    ids = [Payment.options(tags=stage.tags("contended")).enqueue(**payment).id for _ in range(2)]

    park = stage.until(lambda: _park(ids), "the park of one of the two")
    loser = UUID(park.execution)
    (winner,) = (each for each in ids if each != loser)
    holder = park.wait.holder.name if park.wait.holder else "nobody any more"
    stage.screen.say(f"Payment {loser} parked at {park.wait.step}: {park.wait.key} is held by {holder}")
    stage.screen.say(f"it stands at place {park.wait.place or 1} in the line, and no worker process waits for it")

    for each in (winner, loser):
        row = stage.until(lambda each=each: finished(each), f"the end of {each}")  # type: ignore[misc]
        claim(row.status == ExecutionStatus.COMPLETED, f"{each} ended {row.status}: {row.failure}")
    first, second = stage.span("charge", winner), stage.span("charge", loser)
    claim(first.overlap(second) <= 0, "the two charge bodies ran at once")
    released = TraceEvent.objects.filter(execution_id=winner, kind=EventKind.RELEASED, step="charge").first()
    if released is None:
        raise ClaimBroken(f"the trace of {winner} has no release of its charge")
    waited = second.begin - released.at.timestamp()
    stage.screen.say(f"Payment {winner} released the account; {milliseconds(waited)} later the body of the other began")
    claim(waited < SOON_SECONDS, f"the parked run began only {waited:.2f} s after the release: it was not woken")

    run = step_run(loser, "charge")
    claim(run.attempts == 1, f"the charge that had to wait took {run.attempts} attempts instead of 1")
    stage.screen.say(
        f"both completed; parks: {run.contention_attempts}, attempts of the charge: {run.attempts}, retries spent: none"
    )
    stage.browse.append(("parked and woken", loser))


def _warm_up(stage: Stage) -> None:
    """Some small payments on one account: what is measured is a worker at work, not one that opens its first connections."""
    account = stage.account("warm-up", Decimal("100.00"))
    few = [
        Payment.enqueue(account_id=account.pk, amount=Decimal("1.00"), pace=0.01).id for _ in range(WARM_UP_PAYMENTS)
    ]
    for each in few:
        stage.until(lambda each=each: finished(each), f"the end of {each}")  # type: ignore[misc]


def _park(ids: list[UUID]) -> views.ParkRow | None:
    parks = views.parks(Execution.objects.filter(pk__in=ids)).rows
    return next((park for park in parks if park.wait.kind == "contention"), None)
