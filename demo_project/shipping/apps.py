"""The app. Its `reactors` module is found by `reactor_coord`, like every installed app's."""

from __future__ import annotations

from django.apps import AppConfig


class ShippingConfig(AppConfig):
    """The shipping app of the demo."""

    name = "demo_project.shipping"
    label = "shipping"
    default_auto_field = "django.db.models.BigAutoField"
