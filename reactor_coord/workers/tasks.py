"""The one task: a hint that an execution may be ready. It carries an id and nothing else that matters."""

from __future__ import annotations

from celery import shared_task

from reactor_coord.runtime import deliver
from reactor_coord.runtime.runner import worker_name


@shared_task(name="reactor_coord.run", acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def run(execution_id: str) -> None:
    """Run the execution if it may run now."""
    deliver(execution_id, worker_name())
