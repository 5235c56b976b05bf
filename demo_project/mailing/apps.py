"""The app. Its `reactors` module is found by `reactor_coord`, like every installed app's."""

from __future__ import annotations

from django.apps import AppConfig


class MailingConfig(AppConfig):
    """The mailing app of the demo."""

    name = "demo_project.mailing"
    label = "mailing"
    default_auto_field = "django.db.models.BigAutoField"
