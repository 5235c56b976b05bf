"""What the shop has, in the admin: to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from demo_project.payments.admin import ReadOnly
from demo_project.shipping.models import Bin, Booking, Entry, Order, Report

if TYPE_CHECKING:
    OrderOptions = admin.ModelAdmin[Order]
    BinOptions = admin.ModelAdmin[Bin]
    BookingOptions = admin.ModelAdmin[Booking]
    EntryOptions = admin.ModelAdmin[Entry]
    ReportOptions = admin.ModelAdmin[Report]
else:
    OrderOptions = BinOptions = BookingOptions = EntryOptions = ReportOptions = admin.ModelAdmin


@admin.register(Order)
class OrderAdmin(ReadOnly, OrderOptions):
    """An order."""

    list_display = ["id", "customer", "total"]


@admin.register(Bin)
class BinAdmin(ReadOnly, BinOptions):
    """A bin and what is in it."""

    list_display = ["warehouse", "sku", "on_hand"]


@admin.register(Booking)
class BookingAdmin(ReadOnly, BookingOptions):
    """A parcel."""

    list_display = ["order_id", "key", "cancelled"]


@admin.register(Entry)
class EntryAdmin(ReadOnly, EntryOptions):
    """A line of a book."""

    list_display = ["book", "number", "what"]
    list_filter = ["book"]


@admin.register(Report)
class ReportAdmin(ReadOnly, ReportOptions):
    """A day's report."""

    list_display = ["at", "warehouse", "reservations"]
