"""The reckoning after a file was paid: each line has its end, each account what its ledger and the file say, to the cent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from uuid import UUID

from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.payments.models import Account, LedgerEntry
from demo_project.payments.payment_file import PaymentRow
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

CHARGED = ("", "charge", "notify")
"""Where a payment may fail and have charged before."""
REFUNDED = ("charge", "notify")


def check_ends(rows: Sequence[PaymentRow], ids: Mapping[str, UUID]) -> None:
    """Nothing lost: every line has its execution, over and as the line says, and no cleanup was left out."""
    found = Execution.objects.in_bulk(list(ids.values()))
    for row in rows:
        expected = ExecutionStatus.FAILED if row.fail_at else ExecutionStatus.COMPLETED
        execution = found.get(ids[row.reference])
        where = f"payment {row.reference} (line {row.line})"
        if execution is None:
            raise ClaimBroken(f"{where} has no execution")
        claim(execution.status == expected, f"{where} is {execution.status} instead of {expected}: {execution.failure}")
        failure = execution.why_failed
        left = failure.rollback_failures if failure is not None else ()
        claim(not left, f"{where} was not rolled back completely: {left}")


def check_money(rows: Sequence[PaymentRow], accounts: Mapping[str, Account]) -> list[str]:
    """Nothing charged twice, and every account what its ledger and the file say; one line in words for each account."""
    return [
        _check_account(name, account, [row for row in rows if row.account == name])
        for name, account in accounts.items()
    ]


def _check_account(name: str, account: Account, rows: Sequence[PaymentRow]) -> str:
    account.refresh_from_db()
    ledger = account.ledger_balance()
    _check_entries(
        name, account, LedgerEntry.Kind.CHARGE, Counter(row.amount for row in rows if row.fail_at in CHARGED)
    )
    _check_entries(
        name, account, LedgerEntry.Kind.REFUND, Counter(row.amount for row in rows if row.fail_at in REFUNDED)
    )
    claim(ledger == account.balance, f"account {name} has {account.balance}, its ledger adds up to {ledger}")
    paid = sum((row.amount for row in rows if not row.fail_at), Decimal(0))
    opening = account.entries.get(kind=LedgerEntry.Kind.OPENING).amount
    claim(
        account.balance == opening - paid,
        f"account {name} has {account.balance}; by the file it should have {opening} - {paid} = {opening - paid}",
    )
    return f"{name:<10} {opening:>10} - {paid:>9} = {account.balance:>9}   ledger {ledger:>9}   right"


def _check_entries(name: str, account: Account, kind: LedgerEntry.Kind, expected: Counter[Decimal]) -> None:
    found = Counter(abs(entry.amount) for entry in account.entries.filter(kind=kind))
    for amount in found - expected:
        raise ClaimBroken(f"account {name}: a {kind} of {amount} is there once too often")
    for amount in expected - found:
        raise ClaimBroken(f"account {name}: a {kind} of {amount} is missing from the ledger")
