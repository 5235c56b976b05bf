"""Prometheus counters and a histogram of the waiting, for projects that install `prometheus-client` and call `connect()`.

A park counts as a park, never as a failure. Labels are names from code (reactor, step, primitive): no key, no id.
"""

from __future__ import annotations

from typing import Any

from reactor_coord.engine.states import EventKind
from reactor_coord.signals import SIGNALS

_connected = False


def connect(registry: Any = None) -> None:
    """Count every event from now on, in the default registry unless one is given. Connecting again changes nothing."""
    global _connected
    if _connected:
        return
    try:
        from prometheus_client import REGISTRY, Counter, Histogram
    except ImportError as error:
        raise ImportError("Metrics need prometheus-client: install django-reactor-coord[telemetry].") from error
    registry = registry or REGISTRY
    events = Counter(
        "reactor_coord_events",
        "What happened to executions, by kind of trace event.",
        ["kind", "reactor", "step", "primitive"],
        registry=registry,
    )
    parked = Histogram(
        "reactor_coord_parked_seconds",
        "From a park to the wake that ended it, in this process's view.",
        ["reactor"],
        buckets=(0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 3600),
        registry=registry,
    )

    def count(sender: object, *, kind: str, reactor: str, step: str, primitive: str, **event: Any) -> None:
        events.labels(str(kind), reactor, step, primitive).inc()
        since = (event.get("data") or {}).get("parked_seconds")
        if kind == EventKind.WOKEN and isinstance(since, int | float):
            parked.labels(reactor).observe(since)

    for each, signal in SIGNALS.items():
        signal.connect(count, weak=False, dispatch_uid=f"reactor_coord.observe.metrics.{each.value}")
    _connected = True
