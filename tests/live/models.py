"""One table, to see whether a body's writes and its checkpoint commit together."""

from __future__ import annotations

from typing import Any

from django.db import models


class Posting(models.Model):
    """One line of an account's ledger."""

    account: models.CharField[Any, Any] = models.CharField(max_length=50)
    amount: models.IntegerField[Any, Any] = models.IntegerField()
    execution: models.CharField[Any, Any] = models.CharField(max_length=50)
