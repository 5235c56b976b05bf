"""Break a ledger on purpose, to see that the demo notices: a check that cannot fail proves nothing.

`DEMO_SABOTAGE=missing` takes a charge out of a ledger, `twice` books one again, `balance` moves a balance by a cent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from decimal import Decimal

from django.core.management.base import CommandError

from demo_project.payments.models import Account, LedgerEntry


def perhaps(accounts: Iterable[Account]) -> None:
    """Do what the environment asks for; nothing, as a rule."""
    wish = os.environ.get("DEMO_SABOTAGE", "")
    if not wish:
        return
    charge = LedgerEntry.objects.filter(account__in=list(accounts), kind=LedgerEntry.Kind.CHARGE)[0]
    if wish == "missing":
        charge.delete()
    elif wish == "twice":
        charge.pk, charge.key = None, f"again:{charge.key}"
        charge.save(force_insert=True)
    elif wish == "balance":
        charge.account.balance += Decimal("0.01")
        charge.account.save()
    else:
        raise CommandError(f"DEMO_SABOTAGE is {wish!r}: it may be missing, twice or balance")
