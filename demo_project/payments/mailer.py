"""Letters to the owner of an account, through Django's mail: files in `.demo/mail` unless the settings say otherwise."""

from __future__ import annotations

from django.core.mail import send_mail

from demo_project.payments.models import Account


def send(account_id: int, text: str) -> None:
    """Write to whoever owns the account."""
    number = Account.objects.values_list("number", flat=True).get(pk=account_id)
    send_mail(f"Your account {number}", text, "bank@example.com", [f"{number}@example.com"])
