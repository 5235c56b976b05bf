"""Charging an account and paying it back, once per key. The bodies of `Payment` call this.

A charge is deliberately the classic lost update: it reads the balance, thinks, and writes what it makes of it, with no
database lock held meanwhile. What keeps two charges of one account apart is the lock of the step, and nothing else: were
that to fail, the balances of the demo would be wrong. That the entry and the balance change together is the database's part.
"""

from __future__ import annotations

import time
from decimal import Decimal

from django.db import transaction

from demo_project.payments.models import Account, LedgerEntry


class InsufficientFunds(Exception):
    """The account has not got that much."""


def open_account(number: str, opening: Decimal) -> Account:
    """A new account with an opening entry."""
    with transaction.atomic():
        account = Account.objects.create(number=number, balance=opening)
        LedgerEntry.objects.create(
            account=account, amount=opening, kind=LedgerEntry.Kind.OPENING, key=f"opening:{account.pk}"
        )
    return account


def charge(account_id: int, amount: Decimal, *, key: str, pace: float = 0.0) -> int:
    """Take `amount`, once per `key`; returns the entry's id as the receipt. `pace`: seconds of thought between read and write.

    Raises InsufficientFunds, having written nothing.
    """
    done = LedgerEntry.objects.filter(key=key).first()
    if done is not None:
        return done.pk
    account = Account.objects.get(pk=account_id)
    if account.balance < amount:
        raise InsufficientFunds(f"account {account.number} has {account.balance}, the payment is {amount}")
    time.sleep(pace)
    return _write(account, -amount, LedgerEntry.Kind.CHARGE, key)


def refund(charge_key: str, *, pace: float = 0.0) -> int | None:
    """Pay a charge back, once; the refund's entry id, or None where there was no such charge."""
    charged = LedgerEntry.objects.select_related("account").filter(key=charge_key).first()
    if charged is None:
        return None
    key = f"refund:{charge_key}"
    done = LedgerEntry.objects.filter(key=key).first()
    if done is not None:
        return done.pk
    time.sleep(pace)
    return _write(charged.account, -charged.amount, LedgerEntry.Kind.REFUND, key)


def _write(account: Account, amount: Decimal, kind: LedgerEntry.Kind, key: str) -> int:
    """The entry and the balance as one: a crash leaves both or neither."""
    account.balance += amount
    with transaction.atomic():
        entry = LedgerEntry.objects.create(account=account, amount=amount, kind=kind, key=key)
        account.save(update_fields=["balance"])
    return entry.pk
