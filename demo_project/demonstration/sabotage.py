"""Break something on purpose, to see that the demo notices: a check that cannot fail proves nothing.

`DEMO_SABOTAGE` names what: each part looks whether it is meant, after its work and before it counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from django.core.management.base import CommandError

from demo_project.mailing.models import SentMail
from demo_project.payments import journal
from demo_project.payments.models import Account, LedgerEntry
from demo_project.shipping import courier
from demo_project.shipping.models import Entry, Report

WISHES = {
    "missing": "takes a charge out of a ledger",
    "twice": "books a charge again",
    "balance": "moves a balance by a cent",
    "quota": "has the courier meet, and turn away, more than its quota in one second",
    "slots": "puts more pickers into the warehouse than it has",
    "report": "writes the daily report once more",
    "gap": "takes an entry out of the ordered book",
    "order": "swaps two entries of the ordered book",
    "mail": "sends a second mail behind the guard's back",
}


def check() -> None:
    """Raise CommandError for a wish that nothing grants."""
    wish = os.environ.get("DEMO_SABOTAGE", "")
    if wish and wish not in WISHES:
        known = ", ".join(WISHES)
        raise CommandError(f"DEMO_SABOTAGE is {wish!r}: it may be one of {known}")


def accounts(of: Iterable[Account]) -> None:
    """Break a ledger; nothing, as a rule."""
    if not _is_wished("missing", "twice", "balance"):
        return
    charge = LedgerEntry.objects.filter(account__in=list(of), kind=LedgerEntry.Kind.CHARGE)[0]
    if _is_wished("missing"):
        charge.delete()
    elif _is_wished("twice"):
        charge.pk, charge.key = None, f"again:{charge.key}"
        charge.save(force_insert=True)
    else:
        charge.account.balance += Decimal("0.01")
        charge.account.save()


def courier_book(path: Path, order: int) -> None:
    """Crowd one second of the courier's book."""
    if not _is_wished("quota"):
        return
    at = courier.visits(path)[-1].at
    crowd = [{"order": order, "at": at, "taken": n < courier.QUOTA_PER_SECOND} for n in range(20)]
    with path.open("a") as book:
        book.writelines(json.dumps(visit) + "\n" for visit in crowd)


def picks(spans: list[journal.Span], most: int) -> list[journal.Span]:
    """Have a few more pickers beside the first."""
    return spans[:1] * (most + 1) + spans[1:] if _is_wished("slots") else spans


def report(warehouse: str) -> None:
    """Write it again."""
    if _is_wished("report"):
        Report.objects.create(warehouse=warehouse, reservations=0)


def book(name: str) -> None:
    """Tear an entry out, or swap two."""
    one, other = Entry.objects.filter(book=name)[1:3]
    if _is_wished("gap"):
        one.delete()
    elif _is_wished("order"):
        one.what, other.what = other.what, one.what
        one.save()
        other.save()


def mail(email: str) -> None:
    """Send one more."""
    if _is_wished("mail"):
        SentMail.objects.create(email=email, subject="News of the day")


def _is_wished(*names: str) -> bool:
    return os.environ.get("DEMO_SABOTAGE", "") in names
