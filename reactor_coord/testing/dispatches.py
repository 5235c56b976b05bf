"""A dispatcher that keeps what would have gone to the broker. The rows are real; only the messages stay here."""

from __future__ import annotations

from dataclasses import dataclass

PATH = "reactor_coord.testing.dispatches.RecordingDispatcher"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One message: the execution to look at, on which queue, after how many seconds."""

    execution_id: str
    queue: str | None = None
    countdown: float = 0.0


class Dispatches(list[Dispatch]):
    """The captured messages, oldest first."""

    @property
    def ids(self) -> list[str]:
        """The executions, in the order of the messages."""
        return [dispatch.execution_id for dispatch in self]

    def take(self) -> list[Dispatch]:
        """All of them, and the list is empty."""
        taken = list(self)
        self.clear()
        return taken


captured = Dispatches()


class RecordingDispatcher:
    """For the `DISPATCHER` setting of tests; the fixture `reactor_dispatches` sets it."""

    def send(
        self, execution_id: str, queue: str | None = None, countdown: float = 0.0, *, is_start: bool = False
    ) -> None:
        """Keep the message."""
        captured.append(Dispatch(execution_id, queue, countdown))
