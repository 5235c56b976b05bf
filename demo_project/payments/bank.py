"""What `Transfer` moves money with: debit and credit, with the fencing token of the lock checked where the money lies.

A worker that was frozen while its lock lapsed and another took it comes with an older token and is refused, whatever it
believes to hold.
"""

from __future__ import annotations

import uuid
from decimal import Decimal

from django.db import transaction

from demo_project.payments.models import Account, LedgerEntry


class StaleFence(Exception):
    """Somebody who came later has held the lock since: this one must not write any more."""


def debit(account_id: int, amount: Decimal, fence: int | None = None) -> None:
    """Take `amount` from the account. With `fence`: only if no later holder of the lock has been here."""
    _move(account_id, -amount, LedgerEntry.Kind.DEBIT, fence)


def credit(account_id: int, amount: Decimal) -> None:
    """Give `amount` to the account."""
    _move(account_id, amount, LedgerEntry.Kind.CREDIT, None)


def balance(account_id: int) -> Decimal:
    """What the account has."""
    return Account.objects.values_list("balance", flat=True).get(pk=account_id)


@transaction.atomic
def _move(account_id: int, amount: Decimal, kind: LedgerEntry.Kind, fence: int | None) -> None:
    account = Account.objects.select_for_update().get(pk=account_id)
    if fence is not None:
        if fence < account.fence:
            raise StaleFence(f"account {account.number} has seen token {account.fence}; {fence} comes too late")
        account.fence = fence
    account.balance += amount
    account.save(update_fields=["balance", "fence"])
    LedgerEntry.objects.create(account=account, amount=amount, kind=kind, key=f"{kind}:{uuid.uuid4()}")
