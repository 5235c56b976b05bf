"""Plain Celery tasks: the bench tests itself with them, without the product."""

from __future__ import annotations

import time

from celery import shared_task

from reactor_coord.testing import recorder
from tests.live import master, remote, traced  # noqa: F401 - a live worker obeys them from its start


@shared_task
def record_sleep(label: str, seconds: float) -> None:
    """A body of that length."""
    with recorder.current().recording(label):
        time.sleep(seconds)


@shared_task
def create_user(username: str) -> None:
    """A row in the worker's database."""
    from django.contrib.auth.models import User

    User.objects.create(username=username)
