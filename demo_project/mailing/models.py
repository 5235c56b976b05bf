"""What was sent to whom, and when."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class SentMail(models.Model):
    """One mail that went out. No constraint keeps a second one of the day away: the guard of `SendEmail` does."""

    email = models.CharField(max_length=200, db_index=True)
    subject = models.CharField(max_length=200)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]

    def __str__(self) -> str:
        return f"{self.subject} to {self.email}"
