"""OpenTelemetry: spans of executions, steps and cleanups, with every event on them, for projects that call `connect()`.

| span | around | parent |
|---|---|---|
| `execute <Reactor>` | an execution, from where a process takes it up to its park or end | what started it |
| `step <Reactor>.<step>` | one step: its coordination, its body, its checkpoint | the execution |
| `compensate ...`, `undo ...` | one cleanup | the execution |

What started an execution is kept in its row: however often it parks, and in whichever worker it goes on, all its spans are
one trace. Each is linked to the span that was current where its message was sent from, and to the worker's own, if any.
Payloads, keys' values apart, are in no attribute; an error is told by the name of its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reactor_coord import spans
from reactor_coord.engine.events import Event
from reactor_coord.signals import SIGNALS
from reactor_coord.spans import Carrier

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

INSTRUMENT = "reactor_coord"
LONGEST = 1024
"""Characters of an attribute, and of a value of a carrier."""


def connect(tracer_provider: Any = None) -> None:
    """Trace from now on, by the global tracer provider unless one is given. Connecting again replaces the provider."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ImportError("Telemetry needs opentelemetry-api: install django-reactor-coord[telemetry].") from error
    spans.tracer = Tracing(trace.get_tracer(INSTRUMENT, tracer_provider=tracer_provider))
    for each, signal in SIGNALS.items():
        signal.connect(_add, dispatch_uid=f"reactor_coord.observe.telemetry.{each.value}")


def disconnect() -> None:
    """Trace no more."""
    spans.tracer = None
    for each, signal in SIGNALS.items():
        signal.disconnect(dispatch_uid=f"reactor_coord.observe.telemetry.{each.value}")


class Tracing:
    """The tracer behind `reactor_coord.spans`."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str | int], parent: Carrier, link: Carrier) -> Iterator[_Open]:
        """See `spans.Tracer`."""
        with self._tracer.start_as_current_span(
            name,
            context=_context_of(parent) if parent else None,
            links=_links(parent, link),
            attributes={f"reactor_coord.{key}": value for key, value in attributes.items() if value != ""},
            record_exception=False,  # what an author's error says may be secret; the events name its class
            set_status_on_exception=False,
        ) as made:
            yield _Open(made)

    def carrier(self) -> dict[str, str]:
        """See `spans.Tracer`."""
        found: dict[str, str] = {}
        _propagator().inject(found)
        return {key: value for key, value in found.items() if len(value) <= LONGEST}


class _Open:
    """One span that is open."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def fail(self, error_type: str) -> None:
        """See `spans.Span`."""
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, error_type)
        self._span.set_attribute("error.type", error_type)


def _propagator() -> Any:
    """Trace context alone: what a project carries as baggage may be secret, and is not written to the database."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _context_of(carrier: Carrier) -> Any:
    return _propagator().extract(carrier)


def _links(parent: Carrier, link: Carrier) -> list[Link]:
    """Links to what brought it about: the span of its message's sender, and the current one where that is not its parent."""
    from opentelemetry import trace
    from opentelemetry.trace import Link

    above = trace.get_current_span(_context_of(parent)).get_span_context() if parent else None
    sender = trace.get_current_span(_context_of(link)).get_span_context() if link else None
    around = trace.get_current_span().get_span_context() if parent else None
    found = {each.span_id: each for each in (sender, around) if each is not None and each.is_valid}
    return [Link(each) for each in found.values() if above is None or each.span_id != above.span_id]


def _add(sender: object, *, event: Event, **told: Any) -> None:
    """Receiver of every signal: an event on the span that is current."""
    from opentelemetry import trace

    span = trace.get_current_span()
    if not span.is_recording():
        return
    names = ("reactor", "step", "primitive", "key", "holder", "execution", "root")
    about = {name: str(told[name])[:LONGEST] for name in names if told.get(name)}
    details = {name: value for name, value in event.data().items() if name not in _SAID_ELSEWHERE}
    span.add_event(
        f"reactor_coord.{event.kind.value}",
        {f"reactor_coord.{name}": _attribute(value) for name, value in {**about, **details}.items()},
    )


_SAID_ELSEWHERE = frozenset({"message", "held_by"})
"""Fields that are no attribute: an error's text is left to the trace of the execution; the holder is an attribute by itself."""


def _attribute(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return ", ".join(map(str, value))[:LONGEST] if isinstance(value, list) else str(value)[:LONGEST]
