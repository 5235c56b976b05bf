"""The workflows: `Payment`, whose charge locks its account, and `Transfer`, which locks two.

`fail_at` makes a step fail, `pace` (seconds) makes bodies last, so that one can watch what overlaps and what does not.
"""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

from demo_project.payments import bank, journal, ledger, mailer
from demo_project.payments.models import Account
from reactor_coord import Context, Input, Reactor, Retry, Step, step, with_lock

FAIL_AT = "^(|audit|charge|notify)$"
LONGEST_PACE = 10


class Audit(Step):
    """Look the account up. Declares nothing: any number of audits run beside each other."""

    account_id = Input(int)
    fail_at = Input(str, default="", pattern=FAIL_AT)
    pace = Input(float, default=0.0, ge=0, le=LONGEST_PACE)

    def run(self) -> dict[str, Any]:
        with journal.witnessed("audit", str(self.context.execution_id), self.account_id):
            account = Account.objects.get(pk=self.account_id)
            time.sleep(self.pace)
            if self.fail_at == "audit":
                self.fail("the audit was told to fail", retryable=False)
        return {"number": account.number}


@with_lock("acct:{account_id}", ttl=5, wait=10, rollback_wait=60)
class Charge(Step):
    """Take the money. One charge at a time per account; an account nobody else charges waits for nobody."""

    account_id = Input(int)
    amount = Input(Decimal, gt=0, max_digits=12, decimal_places=2)
    fail_at = Input(str, default="", pattern=FAIL_AT)
    pace = Input(float, default=0.0, ge=0, le=LONGEST_PACE)

    retry = Retry(max_attempts=3, backoff="exponential", base_delay=0.5, on=(ConnectionError,))

    def run(self) -> dict[str, Any]:
        execution = str(self.context.execution_id)
        with journal.witnessed("charge", execution, self.account_id):
            key = self.context.idempotency_key
            ledger.charge(self.account_id, self.amount, key=key, pace=self.pace / 2)
            journal.note("written", "charge", execution, self.account_id)
            time.sleep(self.pace / 2)
            if self.fail_at == "charge":
                self.fail("the charge was told to fail", retryable=False)
        return {"receipt": key}

    def compensate(self, error: BaseException) -> None:
        """This charge itself failed: take back what it may have written."""
        ledger.refund(self.context.idempotency_key)

    def undo(self, result: dict[str, Any]) -> None:
        """The charge stood, something later failed: pay it back, under the same lock."""
        with journal.witnessed("refund", str(self.context.execution_id), self.account_id):
            ledger.refund(result["receipt"], pace=self.pace)


class Payment(Reactor):
    """Audit, charge, notify. Only the charge is locked, so only charges of one account wait for each other."""

    account_id = Input(int)
    amount = Input(Decimal, gt=0, max_digits=12, decimal_places=2)
    card_token = Input(str, redact=True, default="")  # for a gateway that wants one; shown as [redacted] everywhere
    fail_at = Input(str, default="", pattern=FAIL_AT)
    pace = Input(float, default=0.0, ge=0, le=LONGEST_PACE)

    audit = step(Audit)
    charge = step(Charge, after=audit)

    @step(receipt=charge["receipt"], account_id=account_id, fail_at=fail_at, pace=pace)
    def notify(receipt: str, account_id: int, fail_at: str, pace: float, context: Context) -> None:
        with journal.witnessed("notify", str(context.execution_id), account_id):
            time.sleep(2 * pace)
            if fail_at == "notify":
                context.fail("the letter was told to fail", retryable=False)
            mailer.send(account_id, f"Thank you. Your receipt: {receipt}")

    @notify.undo
    def _(result: None, receipt: str, account_id: int) -> None:
        mailer.send(account_id, f"We were wrong, the payment did not go through. Receipt: {receipt}")

    returns = charge


# The transfer: two keys at once, the database in one transaction with the checkpoint, the money fenced where it lies.


@with_lock("acct:{source}", "acct:{target}", ttl=30, max_wait=600)
class MoveMoney(Step):
    """Debit and credit. All or nothing, and never beside another transfer of either account."""

    source = Input(int)
    target = Input(int)
    amount = Input(Decimal, gt=0, decimal_places=2)
    atomic = True

    def guard(self) -> None:
        if self.source == self.target:
            self.skip(reason="same account")

    def run(self) -> dict[str, Any]:
        bank.debit(self.source, self.amount, fence=self.context.fence(f"acct:{self.source}"))
        bank.credit(self.target, self.amount)
        return {"balance": bank.balance(self.source)}

    def undo(self, result: dict[str, Any]) -> None:
        bank.credit(self.source, self.amount)
        bank.debit(self.target, self.amount)


class Transfer(Reactor):
    """Move money from one account to another, and tell who paid."""

    source = Input(int)
    target = Input(int)
    amount = Input(Decimal, gt=0, decimal_places=2)

    move = step(MoveMoney)  # its inputs have the reactor's names: wired by name

    @step(balance=move["balance"], account=source)
    def tell(balance: Decimal | None, account: int) -> None:
        mailer.send(account, f"Your balance is now {balance}")
