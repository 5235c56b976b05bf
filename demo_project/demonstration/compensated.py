"""A payment whose last step fails: the charge is undone under the lock it was made under."""

from __future__ import annotations

from decimal import Decimal

from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage, finished
from demo_project.payments.reactors import Payment
from reactor_coord import Outcome
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.operations import views

PACE_SECONDS = 0.2
PROMISE = "a payment whose letter fails: the charge is paid back under its lock"


def show(stage: Stage) -> None:
    """Enqueue, look into Redis while the undo runs, then at what is left. Raises ClaimBroken."""
    account = stage.account("compensated", Decimal("100.00"))
    key = f"acct:{account.pk}"
    payment = Payment.options(tags=stage.tags("compensated")).enqueue(
        account_id=account.pk, amount=Decimal("25.00"), fail_at="notify", pace=PACE_SECONDS
    )
    stage.until(lambda: stage.mark("begin", "refund", payment.id), "the undo of the charge")
    held = views.hold(key)
    still = stage.mark("end", "refund", payment.id) is None
    _check_holder(held, key, str(payment.id), still)
    assert held is not None
    stage.screen.say(f"while the refund ran, Redis had {key} held by {held.owner}: this execution (token {held.fence})")

    row = stage.until(lambda: finished(payment.id), f"the end of {payment.id}")
    claim(row.status == ExecutionStatus.FAILED, f"it ended {row.status} although its letter failed")
    failure = Outcome.of_row(row).failure
    assert failure is not None
    claim(failure.step == "notify", f"the failure is laid to {failure.step!r} instead of notify")
    claim(not failure.rollback_failures, f"the rollback is incomplete: {failure.rollback_failures}")
    claim(views.hold(key) is None, f"{key} is still held although the execution is over")
    stage.screen.say(
        f"it ended {row.status} at {failure.step}: {failure.message}; nothing is left to clean up, {key} is free"
    )

    account.refresh_from_db()
    moves = [f"{entry.amount:+}" for entry in account.entries.all()]
    claim(account.balance == Decimal("100.00"), f"the balance is {account.balance} instead of 100.00")
    claim(account.ledger_balance() == account.balance, "the ledger does not add up to the balance")
    claim(moves == ["+100.00", "-25.00", "+25.00"], f"the ledger has {', '.join(moves)}")
    stage.screen.say(f"ledger {' '.join(moves)} = {account.balance}")
    stage.browse.append(("rolled back", payment.id))


def _check_holder(held: views.HoldRow | None, key: str, execution: str, still: bool) -> None:
    claim(still, "the undo was over before Redis could be asked: this machine is too busy to show this part")
    claim(held is not None, f"while the refund ran nobody held {key}")
    assert held is not None
    claim(held.owner == execution, f"while the refund ran {key} was held by {held.owner}, not by {execution}")
