"""Prometheus counters and a histogram of the waiting, for projects that install `prometheus-client` and call `connect()`.

A park counts as a park, never as a failure. Labels are names from code (reactor, step, primitive): no key, no id. The series
of every reactor that this process has defined exist from the first scrape, at 0: a rate or an alert over a counter that
appears with its first event would miss that event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.registry import all_definitions
from reactor_coord.engine.events import EVENTS, Event, ExecutionEvent, ExecutionWoken, HoldEvent, KeyEvent, StepEvent
from reactor_coord.signals import SIGNALS

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition

Labels = tuple[str, str, str, str]
"""Kind, reactor, step, primitive."""

BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 3600)
"""Seconds. A wake by a release takes milliseconds; a wait for a person takes hours."""

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
    events = Counter(
        "reactor_coord_events",
        "What happened to executions, by kind of trace event.",
        ["kind", "reactor", "step", "primitive"],
        registry=None,
    )
    parked = Histogram(
        "reactor_coord_parked_seconds",
        "From a park to the wake that ended it, by the database's clock.",
        ["reactor"],
        buckets=BUCKETS,
        registry=None,
    )
    collector = Metrics(events, parked)
    collector.prepare()
    (registry or REGISTRY).register(collector)
    for each, signal in SIGNALS.items():
        signal.connect(collector.count, weak=False, dispatch_uid=f"reactor_coord.observe.metrics.{each.value}")
    _connected = True


class Metrics:
    """Both metrics as one collector, which adds the series of reactors defined since the last scrape."""

    def __init__(self, events: Any, parked: Any) -> None:
        self._events = events
        self._parked = parked
        self._prepared: dict[str, ReactorDefinition] = {}

    def count(self, sender: object, *, event: Event, reactor: str, **_: Any) -> None:
        """Receiver of every signal."""
        step, primitive, _key = event.subject
        self._events.labels(event.kind.value, reactor, step, primitive).inc()
        if isinstance(event, ExecutionWoken) and event.parked_seconds is not None:
            self._parked.labels(reactor).observe(event.parked_seconds)

    def prepare(self) -> None:
        """Have every known series, without counting anything."""
        for definition in all_definitions():
            if self._prepared.get(definition.name) is definition:
                continue
            self._prepared[definition.name] = definition
            self._parked.labels(definition.label)
            for labels in series_of(definition):
                self._events.labels(*labels)

    def describe(self) -> Iterable[Any]:
        """What there is, without values: to find two collectors of one name."""
        return [*self._events.describe(), *self._parked.describe()]

    def collect(self) -> Iterable[Any]:
        """What a scrape reads."""
        self.prepare()
        return [*self._events.collect(), *self._parked.collect()]


def series_of(definition: ReactorDefinition) -> Iterator[Labels]:
    """Every series that executions of this reactor can count in."""
    for event in EVENTS:
        for step, primitive in _places_of(event, definition):
            yield event.kind.value, definition.label, step, primitive


def _places_of(event: type[Event], definition: ReactorDefinition) -> list[tuple[str, str]]:
    """Step and primitive at which this kind of event can happen."""
    steps = [(name, "") for name in definition.steps]
    if issubclass(event, StepEvent):
        return steps
    if issubclass(event, ExecutionEvent):
        return [("", "")]
    keys = [("", primitive) for primitive in definition.coordination]
    keys += [(name, primitive) for name, step in definition.steps.items() for primitive in step.coordination]
    if issubclass(event, HoldEvent):
        return keys
    return [("", ""), *steps, *(keys if issubclass(event, KeyEvent) else ())]
