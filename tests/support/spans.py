"""Spans of OpenTelemetry's own SDK, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from reactor_coord.observe import telemetry


class Recorded:
    """What was traced, and a tracer to make spans around it."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.tracer = provider.get_tracer("the project's own")
        self._exporter = exporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that ended, in order of their beginning."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of this name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The one of this name."""
        [found] = self.named(name)
        return found

    def tree(self) -> list[str]:
        """Names with two blanks for each level of nesting, depth first."""
        known = {span.context.span_id: span for span in self.spans}
        below: dict[int | None, list[ReadableSpan]] = {}
        for span in self.spans:
            above = span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
            below.setdefault(above, []).append(span)

        def lines(above: int | None, depth: int) -> Iterator[str]:
            for span in below.get(above, ()):
                yield f"{'  ' * depth}{span.name}"
                yield from lines(span.context.span_id, depth + 1)

        return list(lines(None, 0))


@contextmanager
def recorded_spans() -> Iterator[Recorded]:
    """Trace to memory for the block."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.connect(provider)
    try:
        yield Recorded(provider, exporter)
    finally:
        telemetry.disconnect()
        provider.shutdown()
