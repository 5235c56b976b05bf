"""A worker that traces, as a project sets it up: a provider for each child process, whose spans are lines of a file.

Asked for by the environment, which names the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import signals

ENVIRONMENT = "RC_TEST_SPANS"


def trace_to_file(**_: Any) -> None:
    """Connect the telemetry of this process."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    from reactor_coord.observe import telemetry

    lines = Path(os.environ[ENVIRONMENT]).open("a", encoding="utf-8")  # noqa: SIM115 - as long as the process
    exporter = ConsoleSpanExporter(out=lines, formatter=lambda span: f"{span.to_json(indent=None)}\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.connect(provider)


if os.environ.get(ENVIRONMENT):
    signals.worker_process_init.connect(trace_to_file, weak=False)
