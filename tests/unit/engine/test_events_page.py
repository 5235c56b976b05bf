"""The page of events says what the code says."""

from __future__ import annotations

import pytest

from reactor_coord.engine import events
from reactor_coord.engine.event_fields import fields_of
from tests.support import events_page


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    page = events_page.PAGE.read_text(encoding="utf-8")
    assert events_page.with_tables(page) == page, "run: python -m tests.support.events_page"


@pytest.mark.parametrize("event", events.EVENTS, ids=lambda event: event.kind.value)
def test_every_event_and_every_field_of_it_is_on_the_page(event: type[events.Event]) -> None:
    page = events_page.PAGE.read_text(encoding="utf-8")
    assert f"| `{event.kind.value}` |" in page
    assert [each.name for each in fields_of(event) if f"`{each.name}`" not in page] == []
