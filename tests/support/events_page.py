"""The tables of `docs/events.md`, from the payload classes: `python -m tests.support.events_page` writes them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"
BEGIN, END = "<!-- made by python -m tests.support.events_page -->", "<!-- end -->"
TYPES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "yes or no",
    datetime: "time",
    tuple[str, ...]: "texts",
}


def tables() -> str:
    """Both tables: the events in the order of their classes, the fields by name."""
    return "\n".join([*_events(), "", *_fields()])


def with_tables(page: str) -> str:
    """The page with its tables replaced by those of the code."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", page, flags=re.DOTALL)


def _events() -> Iterator[str]:
    from reactor_coord import signals
    from reactor_coord.engine.event_fields import fields_of
    from reactor_coord.engine.events import EVENTS
    from reactor_coord.observe.logs import LINES

    names = {id(signal): name for name, signal in vars(signals).items()}
    yield "| kind | signal | log line | what happened | fields |"
    yield "|---|---|---|---|---|"
    for event in EVENTS:
        line = LINES[event.kind]
        fields = ", ".join(f"`{each.name}`" for each in fields_of(event) if not each.is_column)
        signal = names[id(signals.SIGNALS[event.kind])]
        level = logging.getLevelName(line.level).lower()
        doc = " ".join((event.__doc__ or "").split())
        yield f"| `{event.kind.value}` | `{signal}` | `{line.name}` ({level}) | {doc} | {fields} |"


def _fields() -> Iterator[str]:
    from reactor_coord.engine.event_fields import fields_of
    from reactor_coord.engine.events import EVENTS

    meanings: dict[tuple[str, str, str], list[str]] = {}
    for event in EVENTS:
        for each in fields_of(event):
            if not each.is_column:
                meanings.setdefault((each.name, TYPES[each.type], each.doc), []).append(event.kind.value)
    shared = {name for name, _, _ in meanings}
    ambiguous = {name for name in shared if sum(name == other for other, _, _ in meanings) > 1}
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for (name, kind, doc), of in sorted(meanings.items()):
        where = f" of {', '.join(f'`{each}`' for each in of)}" if name in ambiguous else ""
        yield f"| `{name}`{where} | {kind} | {doc} |"


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
