"""Every kind of event has one typed payload: what it writes, it reads; what another version wrote, it reads as far as it can."""

from __future__ import annotations

import dataclasses
import json
import pickle
from datetime import timedelta, timezone
from typing import Any

import pytest

from reactor_coord.engine import events
from reactor_coord.engine.event_fields import COLUMNS, fields_of
from reactor_coord.engine.events import Event
from reactor_coord.engine.states import EventKind
from tests.support.events import NOON, every_event, full


def of_row(event: Event) -> Event | None:
    """The event as read from the trace row that it wrote."""
    step, primitive, key = event.subject
    data = json.loads(json.dumps(event.data(), allow_nan=False))
    return events.read(event.kind.value, data, step=step, primitive=primitive, key=key)


def test_every_kind_has_one_payload_and_every_payload_a_kind_of_its_own() -> None:
    assert set(events.BY_KIND) == set(EventKind)
    assert len(events.EVENTS) == len(set(events.EVENTS)) == len(EventKind)


@every_event
def test_a_payload_is_a_frozen_value_without_a_dict(event: type[Event]) -> None:
    made = full(event)
    assert made == full(event)
    assert hash(made) == hash(full(event))
    assert not hasattr(made, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.step = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(made)) == made


@every_event
def test_every_field_says_what_it_is(event: type[Event]) -> None:
    assert event.__doc__
    assert [each.name for each in fields_of(event) if not each.doc] == []


@every_event
def test_what_a_payload_writes_it_reads(event: type[Event]) -> None:
    assert of_row(full(event)) == full(event)


@every_event
def test_the_columns_are_not_repeated_in_the_data(event: type[Event]) -> None:
    names = {each.name for each in fields_of(event)}
    assert set(full(event).data()) == names - set(COLUMNS)


@every_event
def test_a_row_that_says_nothing_is_read_as_an_event_without_details(event: type[Event]) -> None:
    empty = event.from_data({}, step="charge", primitive="lock", key="acct:1")
    assert empty == of_row(empty)
    assert all(value in (0, False) for value in empty.data().values() if value != "cancel")


@every_event
@pytest.mark.parametrize(
    "odd", [None, [], {}, "words", {"nested": 1}, float("nan"), 10**400, 6.7e16, True, -1], ids=repr
)
def test_whatever_stands_in_a_row_reading_it_raises_nothing(event: type[Event], odd: Any) -> None:
    names = {name: odd for each in fields_of(event) for name in each.names}
    found = event.from_data(names | {"of a later version": odd})
    assert isinstance(found, event)
    json.dumps(found.data(), allow_nan=False)
    assert isinstance(event.from_data(odd), event)


def test_a_kind_of_a_later_version_is_no_event() -> None:
    assert events.read("teleported", {"to": "mars"}) is None


@pytest.mark.parametrize(
    "kind, written, name, value",
    [
        ("retrying", {"retry_in": 2.5}, "retry_in_seconds", 2.5),
        ("retrying", {"retry_in": 9.0, "retry_in_seconds": 2.5}, "retry_in_seconds", 2.5),
        ("refused", {"retry_after": 3}, "retry_after_seconds", 3),
        ("operator", {"slot": NOON.timestamp()}, "slot_at", NOON),
        ("parked", {"until": "2026-03-01T12:00:00"}, "until", NOON),
    ],
)
def test_what_an_earlier_version_wrote_is_read(kind: str, written: dict[str, Any], name: str, value: object) -> None:
    assert getattr(events.read(kind, written), name) == value


def test_what_has_no_value_is_left_out_and_a_zero_is_one() -> None:
    refused = events.HoldRefused(step="charge", primitive="lock", key="acct:1", place=0, held_by="")
    assert refused.data() == {"place": 0}


def test_times_and_tuples_and_odd_numbers_are_written_as_json() -> None:
    zone = timezone(timedelta(hours=2))
    parked = events.ExecutionParked(park_kind="retry", until=NOON.astimezone(zone))
    assert parked.data() == {"park_kind": "retry", "until": "2026-03-01T14:00:00+02:00", "attempt": 0}
    ring = events.DeadlockFound(step="a", primitive="lock", key="k", victim="x", cycle=("x waits", "y waits"))
    assert ring.data() == {"victim": "x", "cycle": ["x waits", "y waits"]}
    odd = events.StepProgress(step="load", done=float("inf"), total=10)
    assert odd.data() == {"total": 10}


def test_who_is_in_the_way_is_told_by_those_that_wait_or_lost_it() -> None:
    told = [each for each in events.EVENTS if full(each).holder]
    assert told == [events.ExecutionParked, events.HoldRefused, events.HoldLost]


def test_what_a_value_must_have_is_asked_for() -> None:
    with pytest.raises(TypeError):
        events.HoldAcquired(step="charge")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        events.StepSucceeded(attempt=1)  # type: ignore[call-arg]
