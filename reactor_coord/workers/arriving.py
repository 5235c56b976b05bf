"""When a message with a countdown is looked at: after no more than that, however far the clocks of two machines differ.

Celery writes a countdown as a time of day by the sender's clock, and who receives it waits for that time by his own. If
his is behind, he would wait as much longer. A receiver whose clock is ahead looks too early; it finds that by the row
(see `runner`), and sends the message again from its own machine, by one clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.worker import strategy as celerys

logger = logging.getLogger("reactor_coord")

COUNTDOWN = "reactor_coord_countdown"
"""The header that says how many seconds the time of day stands for."""

SENDER = "reactor_coord_sender"
"""The header with the trace context of what sent the message, where the project traces."""

LONGEST_CONTEXT = 1024
"""Characters of one entry of a trace context: W3C's are shorter."""


def strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """Celery's own, of a message that was looked at first."""
    handle = celerys.default(task, app, consumer, **options)

    def receive(message: Any, *args: Any, **more: Any) -> Any:
        bound_wait(message.headers)
        return handle(message, *args, **more)

    return receive


def sender_of(request: Any) -> dict[str, str]:
    """The trace context that the message brought; empty where it brought none, or none that could be one."""
    found = request.get(SENDER)
    if not isinstance(found, dict):
        return {}
    entries = [(key, value) for key, value in found.items() if isinstance(key, str) and isinstance(value, str)]
    return {key: value for key, value in entries if len(value) <= LONGEST_CONTEXT}


def bound_wait(headers: Any) -> None:
    """Have it wait, by this machine's clock, no longer than its countdown."""
    try:
        latest = datetime.now(UTC) + timedelta(seconds=float(headers[COUNTDOWN]))
        if datetime.fromisoformat(headers["eta"]) > latest:
            headers["eta"] = latest.isoformat()
    except KeyError:  # without a countdown
        return
    except Exception as error:  # noqa: BLE001 - anybody may have written it: whatever is in it must not end the consumer
        logger.warning("event=reactor_coord.damaged_message error=%s", type(error).__name__)
