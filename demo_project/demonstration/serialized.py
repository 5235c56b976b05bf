"""Two runs on one account, in two threads of this process: the charges come one after the other, the rest does not wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

from django.db import connections

from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage, milliseconds
from demo_project.payments.reactors import Payment
from reactor_coord import Outcome

PACE_SECONDS = 0.3
PROMISE = "two runs on one account: only the step that locks it waits"


def show(stage: Stage) -> None:
    """Run, then look at what overlapped. Raises ClaimBroken."""
    account = stage.account("serialized", Decimal("100.00"))
    together = threading.Barrier(2)

    def pay() -> Outcome:
        together.wait()
        try:
            return Payment.run(account_id=account.pk, amount=Decimal("10.00"), pace=PACE_SECONDS)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        outcomes = [each.result() for each in [pool.submit(pay), pool.submit(pay)]]
    for outcome in outcomes:
        claim(outcome.succeeded, f"a run ended {outcome.status}: {outcome.failure}")

    overlaps = {}
    for body in ("audit", "charge", "notify"):
        one, other = (stage.span(body, outcome.execution.id) for outcome in outcomes)
        overlaps[body] = one.overlap(other)
    apart = -overlaps["charge"]
    stage.screen.say(f"audit and audit ran beside each other for {milliseconds(overlaps['audit'])}")
    claim(apart >= 0, f"two charge bodies on one account ran at once for {milliseconds(-apart)}")
    stage.screen.say(f"charge and charge did not: the second began {milliseconds(apart)} after the first had ended")
    stage.screen.say(f"notify and notify ran beside each other for {milliseconds(overlaps['notify'])}")
    for body in ("audit", "notify"):
        claim(overlaps[body] > 0, f"{body} did not overlap, although nothing locks it")
    account.refresh_from_db()
    claim(
        account.balance == Decimal("80.00"), f"the balance is {account.balance} after two payments of 10.00 from 100.00"
    )
    stage.screen.say("balance 100.00 - 10.00 - 10.00 = 80.00")
