"""The warehouse: pieces are taken out of bins and put back, each once per key."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F

from demo_project.shipping.models import Bin, Reservation


class OutOfStock(Exception):
    """There is not that much of it."""


@transaction.atomic
def reserve(warehouse: str, sku: str, quantity: int, *, key: str) -> dict[str, Any]:
    """Take `quantity` pieces out of the bin. Raises OutOfStock, having taken none."""
    shelf = Bin.objects.get(warehouse=warehouse, sku=sku)
    reservation, is_new = Reservation.objects.get_or_create(key=key, defaults={"bin": shelf, "quantity": quantity})
    if is_new and not Bin.objects.filter(pk=shelf.pk, on_hand__gte=quantity).update(on_hand=F("on_hand") - quantity):
        raise OutOfStock(f"{warehouse} has no {quantity} of {sku}")
    return {"reservation": reservation.pk, "sku": sku, "quantity": quantity}


@transaction.atomic
def release(reservation: dict[str, Any]) -> None:
    """Put the pieces of a reservation back, once."""
    found = Reservation.objects.select_related("bin").get(pk=reservation["reservation"])
    if Reservation.objects.filter(pk=found.pk, released=False).update(released=True):
        Bin.objects.filter(pk=found.bin_id).update(on_hand=F("on_hand") + found.quantity)
