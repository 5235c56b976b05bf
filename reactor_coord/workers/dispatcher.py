"""The default dispatcher: messages through Celery."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from reactor_coord import spans
from reactor_coord.workers.arriving import COUNTDOWN, SENDER
from reactor_coord.workers.tasks import run

START_PRIORITY = 6
"""On Redis 0 is the highest; a worker takes what is behind a lower number first. No setting is needed for it there."""


@lru_cache(maxsize=1)
def _lets_others_pass() -> bool:
    """Whether the broker orders by priority without a queue declared for it, as Redis does and RabbitMQ does not."""
    with run.app.connection_for_write() as connection:
        return bool(connection.transport.driver_type == "redis")


class CeleryDispatcher:
    """Sends the task by the project's Celery app. `queue` None is that app's default queue."""

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None:
        """Publish; raises what the broker raises."""
        options: dict[str, Any] = {"queue": queue} if queue else {}
        if is_start and _lets_others_pass():
            options["priority"] = START_PRIORITY
        headers: dict[str, Any] = {}
        if countdown > 0:
            options["countdown"] = headers[COUNTDOWN] = countdown
        if sender := spans.carrier():
            headers[SENDER] = sender
        if headers:
            options["headers"] = headers
        run.apply_async((execution_id,), retry=False, **options)
