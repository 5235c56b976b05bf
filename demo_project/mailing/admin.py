"""What was sent, in the admin: to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from demo_project.mailing.models import SentMail
from demo_project.payments.admin import ReadOnly

if TYPE_CHECKING:
    SentMailOptions = admin.ModelAdmin[SentMail]
else:
    SentMailOptions = admin.ModelAdmin


@admin.register(SentMail)
class SentMailAdmin(ReadOnly, SentMailOptions):
    """A mail."""

    list_display = ["at", "email", "subject"]
    search_fields = ["email"]
