"""Accounts and their ledger: an account's balance is the sum of its entries, and no entry is written twice."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.db import models
from django.db.models import Sum


class Account(models.Model):
    """Money somebody has. `fence` is the highest fencing token that a transfer has come with; an older one is refused."""

    number = models.CharField(max_length=40, unique=True)
    balance = models.DecimalField(max_digits=14, decimal_places=2, default=Decimal("0.00"))
    fence = models.BigIntegerField(default=0)

    class Meta:
        ordering: ClassVar = ["number"]

    def __str__(self) -> str:
        return self.number

    def ledger_balance(self) -> Decimal:
        """What the entries add up to; always the balance, or something went wrong. One query."""
        total: Decimal | None = self.entries.aggregate(total=Sum("amount"))["total"]
        return (total or Decimal(0)).quantize(Decimal("0.01"))


class LedgerEntry(models.Model):
    """One movement on one account. `amount` is signed; `key` names the one act it records, so that it is recorded once."""

    class Kind(models.TextChoices):
        """Why money moved."""

        OPENING = "opening"
        CHARGE = "charge"
        REFUND = "refund"
        DEBIT = "debit"
        CREDIT = "credit"

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="entries")
    amount = models.DecimalField(max_digits=14, decimal_places=2)
    kind = models.CharField(max_length=10, choices=Kind)
    key = models.CharField(max_length=200, unique=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.kind} {self.amount} on {self.account_id}"
