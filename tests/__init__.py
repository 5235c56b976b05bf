"""The tests, and the Django project they run in."""

from __future__ import annotations

from tests.celery_app import app as celery_app

__all__ = ["celery_app"]
