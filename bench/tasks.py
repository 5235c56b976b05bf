"""Celery's own: a task that does nothing but say when it began."""

from __future__ import annotations

import time

from celery import shared_task
from django_redis import get_redis_connection

STARTS = "bench:celery-starts"


@shared_task
def note_start() -> None:
    """Push the system's monotonic clock, which all processes of a machine share, to a list."""
    began = time.monotonic()
    get_redis_connection("default").rpush(STARTS, repr(began))
