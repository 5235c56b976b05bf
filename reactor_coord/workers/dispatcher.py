"""The default dispatcher: messages through Celery."""

from __future__ import annotations

from typing import Any

from reactor_coord.workers.tasks import run


class CeleryDispatcher:
    """Sends the task by the project's Celery app. `queue` None is that app's default queue."""

    def send(self, execution_id: str, queue: str | None, countdown: float) -> None:
        """Publish; raises what the broker raises."""
        options: dict[str, Any] = {"queue": queue} if queue else {}
        if countdown > 0:
            options["countdown"] = countdown
        run.apply_async((execution_id,), retry=False, **options)
