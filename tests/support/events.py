"""Events with a value in every field, and what the signals said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from reactor_coord.engine import events
from reactor_coord.engine.event_fields import fields_of
from reactor_coord.engine.events import Event
from reactor_coord.signals import SIGNALS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAMPLES: dict[Any, Any] = {str: "text", int: 7, float: 1.5, bool: True, datetime: NOON, tuple[str, ...]: ("a", "b")}

every_event = pytest.mark.parametrize("event", events.EVENTS, ids=lambda event: event.kind.value)


def full(event: type[Event]) -> Event:
    """An event of this class with a value in every field."""
    return event(**{each.name: SAMPLES[each.type] for each in fields_of(event)})


@contextmanager
def heard_signals() -> Iterator[list[dict[str, Any]]]:
    """The keyword arguments of every signal sent meanwhile, with its `sender`, in order."""
    found: list[dict[str, Any]] = []

    def hear(sender: object, signal: object, **told: Any) -> None:
        found.append({"sender": sender, **told})

    for signal in SIGNALS.values():
        signal.connect(hear)
    try:
        yield found
    finally:
        for signal in SIGNALS.values():
            signal.disconnect(hear)
