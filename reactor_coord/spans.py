"""The port of tracing: what runs is put into spans, if a tracer is set; without one it costs a comparison.

A carrier is a trace context as text, such as `{"traceparent": "00-..."}`. It is kept in the row of an execution, so that
all that becomes of the execution, in whichever process and however much later, is one trace; and it travels in a message,
so that the work which a message brought about can name what sent it. The tracer is set by `reactor_coord.observe.telemetry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

Carrier = Mapping[str, str]
NO_CARRIER: Carrier = {}


class Span(Protocol):
    """One span that is open."""

    def fail(self, error_type: str) -> None:
        """Mark it as failed, by the name of an error's class."""


class Tracer(Protocol):
    """What makes spans."""

    def span(
        self, name: str, attributes: Mapping[str, str | int], parent: Carrier, link: Carrier
    ) -> AbstractContextManager[Span]:
        """Open a span that is the current one until the block ends, whatever ends it.

        `parent`: a carrier of the span above it; an empty one means the span that is current. `link`: a carrier of another
        span that brought it about, or an empty one.
        """

    def carrier(self) -> dict[str, str]:
        """Return the current trace context, empty where there is none."""


class _NoSpan:
    """What is open where nothing is traced."""

    __slots__ = ()

    def fail(self, error_type: str) -> None:
        """Nothing."""


NO_SPAN: Span = _NoSpan()

tracer: Tracer | None = None
"""Makes the spans of this process; None where the project does not trace."""

_received: ContextVar[Carrier] = ContextVar("reactor_coord_received", default=NO_CARRIER)


def span(
    name: str, attributes: Mapping[str, str | int], *, parent: Carrier = NO_CARRIER, link: Carrier = NO_CARRIER
) -> AbstractContextManager[Span]:
    """Open a span for a block, see `Tracer.span`."""
    if tracer is None:
        return nullcontext(NO_SPAN)
    return tracer.span(name, attributes, parent, link)


def carrier() -> dict[str, str]:
    """Return the current trace context; empty where nothing is traced."""
    return {} if tracer is None else tracer.carrier()


@contextmanager
def received(brought: Carrier) -> Iterator[None]:
    """Have what runs in the block know the carrier that its message brought."""
    token = _received.set(brought)
    try:
        yield
    finally:
        _received.reset(token)


def received_carrier() -> Carrier:
    """Return the carrier that the present message brought; empty outside any."""
    return _received.get()
