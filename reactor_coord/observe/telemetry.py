"""OpenTelemetry: every event is an event on the span that is current where it happens, for projects that call `connect()`.

Spans are made by the project's own instrumentation (Celery's, Django's): an execution that is woken in another worker
belongs to that worker's span.
"""

from __future__ import annotations

from typing import Any

from reactor_coord.signals import SIGNALS


def connect() -> None:
    """Add an event to the current span for everything that happens from now on. Connecting again changes nothing."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ImportError("Telemetry needs opentelemetry-api: install django-reactor-coord[telemetry].") from error

    def add(sender: object, *, kind: str, **event: Any) -> None:
        span = trace.get_current_span()
        if span.is_recording():
            names = ("reactor", "step", "primitive", "key", "holder", "execution", "root")
            span.add_event(
                f"reactor_coord.{kind}",
                {f"reactor_coord.{name}": str(event[name]) for name in names if event.get(name)},
            )

    for each, signal in SIGNALS.items():
        signal.connect(add, weak=False, dispatch_uid=f"reactor_coord.observe.telemetry.{each.value}")
