"""The one task: a hint that an execution may be ready. It carries an id and nothing else that matters."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from reactor_coord import spans
from reactor_coord.runtime import deliver
from reactor_coord.runtime.runner import worker_name
from reactor_coord.workers.arriving import sender_of
from reactor_coord.workers.connecting import kept_connections


class Hint(Task[Any, Any]):
    """Waits out a countdown by one clock, see `arriving`."""

    abstract = True
    Strategy = "reactor_coord.workers.arriving:strategy"


@shared_task(
    base=Hint, bind=True, name="reactor_coord.run", acks_late=True, reject_on_worker_lost=True, ignore_result=True
)
def run(task: Any, execution_id: str) -> None:
    """Run the execution if it may run now."""
    if task.request.called_directly or task.request.is_eager:  # its connections are its caller's
        return deliver(execution_id, worker_name())
    with kept_connections(), spans.received(sender_of(task.request)):
        deliver(execution_id, worker_name())
