"""What somebody who looks at the demo site needs: a user to log in with, and accounts to move money between."""

from __future__ import annotations

from decimal import Decimal

from django.contrib.auth import get_user_model

from demo_project.payments import ledger
from demo_project.payments.models import Account

ADMIN = "admin"
ACCOUNTS = ("alice", "bob", "carol")


def sow() -> str:
    """Make what is missing, change nothing that is there; says how to log in. The password is for the demo only."""
    for number in ACCOUNTS:
        if not Account.objects.filter(number=number).exists():
            ledger.open_account(number, Decimal("1000.00"))
    user_model = get_user_model()
    if user_model._default_manager.filter(username=ADMIN).exists():
        return "user admin (password admin, unless it was changed)"
    user = user_model(username=ADMIN, is_staff=True, is_superuser=True)
    user.set_password(ADMIN)
    user.save()
    return "user admin, password admin"
