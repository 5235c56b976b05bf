"""Orders, bins, parcels, sales, reports, and a book of numbered entries."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.db import models


class Order(models.Model):
    """What a customer ordered; `customer` is the account that pays."""

    customer = models.BigIntegerField()
    total = models.DecimalField(max_digits=12, decimal_places=2, default=Decimal("0.00"))

    def __str__(self) -> str:
        return f"order {self.pk}"


class Bin(models.Model):
    """So many pieces of one thing in one warehouse."""

    warehouse = models.CharField(max_length=40)
    sku = models.CharField(max_length=40)
    on_hand = models.IntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["warehouse", "sku"], name="one_bin_per_sku")]

    def __str__(self) -> str:
        return f"{self.sku} in {self.warehouse}"


class Reservation(models.Model):
    """Pieces taken out of a bin for somebody; once per key."""

    bin = models.ForeignKey(Bin, on_delete=models.PROTECT, related_name="reservations")
    quantity = models.PositiveIntegerField()
    key = models.CharField(max_length=200, unique=True)
    released = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.quantity} of {self.bin_id}"


class Booking(models.Model):
    """A parcel that the courier has agreed to fetch; once per key."""

    order_id = models.BigIntegerField()
    key = models.CharField(max_length=200, unique=True)
    cancelled = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"parcel of order {self.order_id}"


class Sale(models.Model):
    """What the analysts count; once per order."""

    order_id = models.BigIntegerField(unique=True)
    total = models.DecimalField(max_digits=12, decimal_places=2)

    def __str__(self) -> str:
        return f"{self.total} for order {self.order_id}"


class Report(models.Model):
    """One day's report, written each time somebody writes one."""

    warehouse = models.CharField(max_length=40)
    reservations = models.PositiveIntegerField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.warehouse}, {self.at:%Y-%m-%d}"


class Entry(models.Model):
    """A numbered line of a book. No constraint keeps the numbers apart: the order in which the lines are written does."""

    book = models.CharField(max_length=60)
    number = models.PositiveIntegerField()
    what = models.CharField(max_length=200)

    class Meta:
        ordering: ClassVar = ["pk"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.book} {self.number}: {self.what}"
