"""Celery only: the task, the dispatcher, the sweep, and the worker's signals that start and stop it."""

from __future__ import annotations

from billiard.exceptions import SoftTimeLimitExceeded
from celery import signals

from reactor_coord.runtime.verdicts import INTERRUPTIONS
from reactor_coord.workers import sweep, tasks  # noqa: F401 - registers the task

if SoftTimeLimitExceeded not in INTERRUPTIONS:
    INTERRUPTIONS.append(SoftTimeLimitExceeded)


def _start(**_: object) -> None:
    sweep.thread.start()


def _stop(**_: object) -> None:
    sweep.thread.stop()


signals.worker_ready.connect(_start, dispatch_uid="reactor_coord.sweep.start")
signals.worker_shutting_down.connect(_stop, dispatch_uid="reactor_coord.sweep.stop")
