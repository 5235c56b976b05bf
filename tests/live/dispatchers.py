"""Brokers that misbehave, as dispatchers."""

from __future__ import annotations

from reactor_coord.testing import recorder
from reactor_coord.workers.dispatcher import CeleryDispatcher

COPIES = 3


def messages() -> recorder.Recorder:
    """Where `Thrice`, in whatever process, notes each message once: a mark, labelled with its execution."""
    of_bodies = recorder.current()
    return recorder.Recorder(of_bodies.url, f"{of_bodies.key}:messages")


class Thrice(CeleryDispatcher):
    """Delivers every message three times."""

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None:
        """Publish three copies."""
        messages().mark(execution_id)
        for _ in range(COPIES):
            super().send(execution_id, queue, countdown, is_start=is_start)
