"""`manage.py seed`: a user and a few accounts for the demo site. `serve` does it by itself."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from demo_project import seed


class Command(BaseCommand):
    """Safe to run again."""

    help = "Make the demo site's user (admin, password admin) and a few accounts, where they are missing."

    def handle(self, *args: Any, **options: Any) -> None:
        """Make them, and say how to log in."""
        self.stdout.write(seed.sow())
