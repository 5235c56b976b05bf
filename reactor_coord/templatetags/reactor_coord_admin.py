"""How the operators' pages write times, statuses and values.

Everything that comes from a row is escaped here or by the template.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.operations import views

register = template.Library()

_TONES: dict[str, str] = {
    ExecutionStatus.READY: "quiet",
    ExecutionStatus.RUNNING: "active",
    ExecutionStatus.PARKED: "waiting",
    ExecutionStatus.PAUSED: "waiting",
    ExecutionStatus.ROLLING_BACK: "undoing",
    ExecutionStatus.COMPLETED: "good",
    ExecutionStatus.HALTED: "quiet",
    ExecutionStatus.FAILED: "bad",
    ExecutionStatus.CANCELLED: "quiet",
    ExecutionStatus.REVERTED: "undoing",
    ExecutionStatus.ABORTED: "bad",
    ExecutionStatus.NEEDS_DEFINITION: "undoing",
    StepStatus.PENDING: "quiet",
    StepStatus.WAITING: "waiting",
    StepStatus.RETRYING: "waiting",
    StepStatus.DISPATCHED: "active",
    StepStatus.SUCCEEDED: "good",
    StepStatus.SKIPPED: "quiet",
    StepStatus.COMPENSATED: "undoing",
    StepStatus.UNDONE: "undoing",
    StepStatus.UNDO_FAILED: "bad",
    # what happened, and the states of a hold
    EventKind.ACQUIRED: "active",
    EventKind.ADOPTED: "active",
    EventKind.GRANTED: "active",
    EventKind.WOKEN: "active",
    EventKind.STARTED: "active",
    EventKind.REFUSED: "waiting",
    EventKind.LOST: "bad",
    EventKind.STEP_SUCCEEDED: "good",
    EventKind.STEP_FAILED: "bad",
    EventKind.WORKER_LOST: "bad",
    "held": "active",
    "blocking": "waiting",
}


@register.filter
def rc_tone(word: Any) -> str:
    """Which of the six tones a status, an event or a hold's state is shown in. Waiting never looks like a failure."""
    return _TONES.get(str(word), "quiet")


@register.filter
def rc_words(word: Any) -> str:
    """A status as people read it: `rolling back`."""
    return str(word).replace("_", " ")


@register.simple_tag
def rc_badge(word: Any, label: Any = "") -> SafeString:
    """A status as a small coloured word."""
    text = str(label or word).replace("_", " ")
    return format_html('<span class="rc-badge rc-{}">{}</span>', rc_tone(word), text)


@register.filter
def rc_span(seconds: float | None) -> str:
    """Seconds as `3 min 5 s`; nothing for None."""
    return "" if seconds is None else views.span(seconds)


@register.filter
def rc_ago(moment: dt.datetime | None) -> SafeString | str:
    """How long ago, with the exact time to hover over."""
    if moment is None:
        return ""
    passed = (timezone.now() - moment).total_seconds()
    words = f"{views.span(passed)} ago" if passed >= 0 else f"in {views.span(-passed)}"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), rc_clock(moment), words)


@register.filter
def rc_due(moment: dt.datetime | None) -> SafeString | str:
    """When something is to happen: `in 4.2 s`, or `due` once that is over."""
    return "due now" if moment is not None and moment <= timezone.now() else rc_ago(moment)


@register.filter
def rc_clock(moment: dt.datetime | None) -> str:
    """The time to the millisecond, in the current time zone."""
    if moment is None:
        return ""
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {local.tzname()}"


@register.filter
def rc_offset(seconds: float) -> str:
    """A time relative to the beginning: `+0.004 s`, `+2 min 11.5 s`."""
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    minutes, rest = divmod(seconds, 60)
    if minutes >= 60:
        return f"{sign}{views.span(seconds)}"
    return f"{sign}{int(minutes)} min {rest:.1f} s" if minutes else f"{sign}{rest:.3f} s"


@register.filter
def rc_pretty(value: Any) -> str:
    """JSON to read. The template escapes it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def rc_short(identifier: Any) -> str:
    """The end of an id."""
    return views.short(str(identifier))


@register.simple_tag(takes_context=True)
def rc_act(context: Any, name: str, **named: Any) -> str:
    """Where an act on coordination asks for confirmation; numbers as they are, whatever the locale."""
    asked = urlencode(named, errors="backslashreplace")  # a key that UTF-8 has no bytes for is acted on through the API
    site = getattr(context.get("request"), "current_app", None)
    return f"{reverse(f'admin:reactor_coord_{name}', current_app=site)}?{asked}"


@register.filter
def rc_is_id(text: Any) -> bool:
    """Whether it can be the id of an execution: a direct call's owner is none."""
    try:
        return bool(UUID(str(text)))
    except ValueError:
        return False


@register.filter
def rc_is_time(value: Any) -> bool:
    """Whether a fact is an instant."""
    return isinstance(value, dt.datetime)


@register.filter
def rc_is_empty(value: Any) -> bool:
    """Whether there is nothing in a payload worth a box."""
    return value in (None, "", [], {})
