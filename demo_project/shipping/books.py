"""Books of numbered entries. The number is read, thought about and written: only the order of the writers keeps it right."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from demo_project.shipping.models import Entry


def append(book: str, what: str, *, pace: float = 0.0) -> int:
    """Write the next entry and return its number. `pace`: seconds of thought between reading the last one and writing."""
    last = Entry.objects.filter(book=book).order_by("-number").values_list("number", flat=True).first() or 0
    time.sleep(pace)
    return Entry.objects.create(book=book, number=last + 1, what=what).number


def post_invoices(org: int, invoices: Mapping[str, Any]) -> dict[str, Any]:
    """Enter an organisation's invoices of a month as one line."""
    count = int(invoices["count"])
    return {"count": count, "number": append(f"org-{org}", f"{count} invoices, {invoices['total']}")}
