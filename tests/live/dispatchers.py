"""Brokers that misbehave, as dispatchers."""

from __future__ import annotations

from reactor_coord.workers.dispatcher import CeleryDispatcher


class Thrice(CeleryDispatcher):
    """Delivers every message three times."""

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None:
        """Publish three copies."""
        for _ in range(3):
            super().send(execution_id, queue, countdown, is_start=is_start)
