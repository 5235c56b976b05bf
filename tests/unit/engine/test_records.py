"""Every record survives its own JSON, reads what earlier versions wrote, and is never broken by what it finds."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord.engine import records
from reactor_coord.engine.records import (
    Failure,
    HoldState,
    ParkedHold,
    Record,
    RollbackFailure,
    RollbackReason,
    StepError,
    StepRollbackFailure,
    Wait,
    holds_of,
    instant,
)

KINDS: list[type[Record]] = [StepError, RollbackFailure, StepRollbackFailure, Failure, ParkedHold, Wait]

text = st.text(max_size=30)
number = st.integers(-(2**53), 2**53)
seconds = st.floats(0, 4e9, allow_nan=False)
moments = st.datetimes(
    datetime(1971, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    datetime(9999, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5))),
)
scalar = st.none() | st.booleans() | number | st.floats() | text
plain_json = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)

errors = st.builds(
    StepError,
    type=text,
    message=text,
    traceback=st.lists(text).map(tuple),
    began=st.booleans(),
    retryable=st.booleans(),
    cause=text,
)
rollback_failures = st.builds(RollbackFailure, step=text, kind=text, reason=text, message=text, key=text, reactor=text)
of_one_step = st.builds(StepRollbackFailure, failures=st.tuples(rollback_failures), order=seconds)
of_units = st.builds(
    StepRollbackFailure, failures=st.lists(rollback_failures).map(tuple), order=seconds, of_units=st.just(True)
)
failures = st.builds(
    Failure,
    step=text,
    reactor=text,
    error_type=text,
    message=text,
    arguments=st.dictionaries(text, scalar.filter(lambda each: each == each), max_size=4),
    rollback_failures=st.lists(rollback_failures, max_size=3).map(tuple),
    cause=text,
)
holds = st.builds(
    ParkedHold,
    primitive=st.text(min_size=1, max_size=9),
    key=st.text(min_size=1, max_size=9),
    fence=st.none() | number,
    since=seconds,
    step=text,
    path=text,
    state=st.sampled_from(["", "held", "released"]),
)
waits = st.builds(
    Wait,
    path=text,
    reactor=text,
    step=text,
    primitive=text,
    key=text,
    keys=st.lists(text).map(tuple),
    holder=text,
    holder_execution=text,
    place=number,
    waiting=number,
    since=st.none() | moments,
    attempts=number,
    stuck=number,
    fence=number,
    until=st.none() | moments,
    timed=st.booleans(),
    position=st.none() | number,
    slot=st.none() | moments,
    units=st.lists(text).map(tuple),
    turns=st.lists(holds, max_size=3).map(tuple),
    correlation_id=text,
)


@given(errors | rollback_failures | of_one_step | of_units | failures | holds | waits)
def test_a_record_is_read_back_as_it_was_written(record: Record) -> None:
    written = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert type(record).from_json(written) == record
    assert written["v"] == records.VERSION


@pytest.mark.parametrize("kind", KINDS)
@given(data=plain_json)
def test_whatever_json_a_column_holds_a_record_is_read(kind: type[Record], data: Any) -> None:
    """A damaged row must not break the page, the sweep or the rollback that reads it."""
    found = kind.from_json(data)
    json.dumps(found.to_json(), allow_nan=not isinstance(found, Failure))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_field_of_another_type_costs_that_field_alone(kind: type[Record], data: st.DataObject) -> None:
    names = [each.name for each in fields(kind)]
    damaged = data.draw(st.dictionaries(st.sampled_from(names), plain_json))
    found = kind.from_json({"step": "charge", **{name: value for name, value in damaged.items() if name != "step"}})
    if "step" in names:
        assert getattr(found, "step") == "charge"  # noqa: B009 - the union has no such attribute for the type checker
    for name in set(names) - {"step"} - damaged.keys() - {"failures"}:
        assert getattr(found, name) == getattr(kind.from_json({}), name)


@pytest.mark.parametrize("kind", KINDS)
@given(known=st.dictionaries(text, plain_json, max_size=3))
def test_what_a_later_version_added_is_passed_over(kind: type[Record], known: dict[str, Any]) -> None:
    names = {each.name for each in fields(kind)} | {"entries"}
    later = {name: value for name, value in known.items() if name not in names}
    assert kind.from_json({**later, "v": 99}) == kind.from_json({})


@pytest.mark.parametrize("nothing", [None, {}, [], "", 0, False])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_an_empty_record(kind: type[Record], nothing: Any) -> None:
    assert kind.from_json(nothing) == kind.from_json({})


def test_a_bare_text_is_the_message_of_what_has_one() -> None:
    assert StepError.from_json("boom").message == "boom"
    assert Failure.from_json("boom").message == "boom"
    assert RollbackFailure.from_json("boom").message == "boom"
    assert StepRollbackFailure.from_json("boom").failures == (RollbackFailure(message="boom"),)
    assert Wait.from_json("boom") == Wait()


# ---- what version 0, which named no version, wrote

OF_VERSION_0: dict[str, tuple[dict[str, Any], Record]] = {
    "contention": (
        {
            "path": "0190/charge",
            "reactor": "Payment",
            "step": "charge",
            "primitive": "lock",
            "key": "acct:1",
            "keys": ["acct:1"],
            "holder": "Payment.charge of execution 018f",
            "holder_execution": "018f",
            "place": 2,
            "waiting": 3,
            "since": "2030-01-01T00:00:00+00:00",
            "attempts": 4,
            "stuck": 1,
            "fence": 9,
            "until": "2030-01-01T00:00:05+00:00",
            "timed": False,
        },
        Wait(
            path="0190/charge",
            reactor="Payment",
            step="charge",
            primitive="lock",
            key="acct:1",
            keys=("acct:1",),
            holder="Payment.charge of execution 018f",
            holder_execution="018f",
            place=2,
            waiting=3,
            since=datetime(2030, 1, 1, tzinfo=UTC),
            attempts=4,
            stuck=1,
            fence=9,
            until=datetime(2030, 1, 1, 0, 0, 5, tzinfo=UTC),
        ),
    ),
    "retry": (
        {"step": "charge", "until": "2030-01-01T00:00:05+00:00", "timed": True},
        Wait(step="charge", until=datetime(2030, 1, 1, 0, 0, 5, tzinfo=UTC), timed=True),
    ),
    "question": (
        {"step": "ask", "reactor": "Payment", "correlation_id": "order:1", "until": "9999-01-01T00:00:00+00:00"},
        Wait(step="ask", reactor="Payment", correlation_id="order:1", until=datetime(9999, 1, 1, tzinfo=UTC)),
    ),
    "failure": (
        {
            "step": "charge",
            "reactor": "Payment",
            "error_type": "ValueError",
            "message": "refused",
            "arguments": {"amount": "9.50"},
            "rollback_failures": [
                {"step": "audit", "reactor": "Payment", "kind": "undo", "key": "", "reason": "raised", "message": "no"}
            ],
        },
        Failure(
            "charge",
            "Payment",
            "ValueError",
            "refused",
            {"amount": "9.50"},
            (RollbackFailure("audit", "undo", "raised", "no", reactor="Payment"),),
        ),
    ),
    "one cleanup": (
        {"step": "a", "reactor": "P", "kind": "undo", "key": "k", "reason": "raised", "message": "no", "order": 1.5},
        StepRollbackFailure((RollbackFailure("a", "undo", "raised", "no", "k", "P"),), 1.5),
    ),
    "units": (
        {"order": 2.5, "entries": [{"step": "a", "kind": "undo", "reason": "raised", "message": "no"}]},
        StepRollbackFailure((RollbackFailure("a", "undo", "raised", "no"),), 2.5, of_units=True),
    ),
    "hold": (
        {"primitive": "lock", "key": "k", "fence": 3, "since": 1.5, "step": "a", "path": "1/a", "state": "held"},
        ParkedHold("lock", "k", 3, 1.5, "a", "1/a", "held"),
    ),
    "error": (
        {"type": "ValueError", "message": "no", "traceback": ["a.py:1 in run"], "began": False, "retryable": True},
        StepError("ValueError", "no", ("a.py:1 in run",), began=False),
    ),
}


@pytest.mark.parametrize("name", OF_VERSION_0)
def test_what_version_0_wrote_is_read(name: str) -> None:
    written, record = OF_VERSION_0[name]
    assert type(record).from_json(written) == record
    kept = record.to_json()
    assert {key: kept.get(key) for key in written} == _with_versions(written), "a worker of version 0 can still read it"


def _with_versions(written: Any) -> Any:
    if isinstance(written, list):
        filled = {"key": "", "reactor": "", "error_type": ""}
        return [{**filled, **each, "v": 1} if isinstance(each, dict) else each for each in written]
    return {key: _with_versions(each) if isinstance(each, list) else each for key, each in written.items()}


# ---- details


@pytest.mark.parametrize(
    "value, found",
    [
        ("2030-01-01T00:00:00Z", datetime(2030, 1, 1, tzinfo=UTC)),
        ("2030-01-01T00:00:00", datetime(2030, 1, 1, tzinfo=UTC)),
        ("2030-01-01T02:00:00+02:00", datetime(2030, 1, 1, tzinfo=UTC)),
        (1893456000, datetime(2030, 1, 1, tzinfo=UTC)),
        (1893456000.5, datetime(2030, 1, 1, microsecond=500000, tzinfo=UTC)),
    ],
)
def test_a_time_is_an_iso_text_or_unix_seconds(value: Any, found: datetime) -> None:
    assert instant(value) == found


@pytest.mark.parametrize(
    "value", ["", "tomorrow", "0001-01-01", "9999-12-31T23:59:59", 1e300, -1, float("nan"), True, 0, [], "１２"]
)
def test_a_time_that_no_page_could_show_is_none(value: Any) -> None:
    assert Wait.from_json({"since": value}).since is None


def test_holds_that_name_nothing_are_left_out() -> None:
    held = ParkedHold("lock", "k")
    assert holds_of([held.to_json(), {}, None, {"primitive": "lock"}, {"key": "k"}, "lock"]) == (held,)
    assert holds_of({"primitive": "lock", "key": "k"}) == ()


def test_a_sparse_record_leaves_out_times_and_lists_that_are_not_there() -> None:
    written = Wait(step="").to_json()
    absent = {"keys", "since", "until", "parked_at", "position", "slot", "units", "turns", "outage_since"}
    assert {each.name for each in fields(Wait)} - written.keys() == absent
    assert (written["step"], written["place"], written["timed"]) == ("", 0, False), "an empty step is the reactor's own"
    assert "fence" not in ParkedHold("period", "k").to_json()
    assert ParkedHold("lock", "k", 0).to_json()["fence"] == 0


def test_a_word_of_an_enumeration_is_written_as_its_text() -> None:
    state = ParkedHold("lock", "k", state=HoldState.HELD).to_json()["state"]
    assert (type(state), state) == (str, "held")


def test_a_hold_says_since_when_if_that_is_known() -> None:
    assert ParkedHold("lock", "k", since=1893456000.0).since_time == datetime(2030, 1, 1, tzinfo=UTC)
    assert ParkedHold("period", "k").since_time is None


def test_a_wait_names_its_execution() -> None:
    assert Wait(path="0190/charge").execution == "0190"
    assert Wait(path="0190/").execution == "0190"
    assert Wait().execution == ""


def test_a_failure_says_where() -> None:
    assert Failure("charge", "Payment").where == "Payment.charge"
    assert Failure("", "Payment").where == "Payment"


def test_an_error_is_told_by_its_type_and_message() -> None:
    assert str(StepError("ValueError", "no")) == "ValueError: no"


def test_a_failure_is_incomplete_while_a_cleanup_is_left() -> None:
    assert not Failure("charge").is_incomplete
    assert Failure("charge", rollback_failures=(RollbackFailure("audit"),)).is_incomplete


@pytest.mark.parametrize(
    "primitive, keys, is_in_line", [("lock", ("k",), True), ("", ("k",), False), ("lock", (), False)]
)
def test_a_wait_stands_in_line_for_the_keys_of_a_primitive(
    primitive: str, keys: tuple[str, ...], is_in_line: bool
) -> None:
    assert Wait(primitive=primitive, keys=keys).is_in_line is is_in_line


def test_an_error_of_which_it_is_not_recorded_whether_the_body_began_counts_as_begun() -> None:
    assert StepError.from_json({"type": "ValueError"}).began


def test_a_traceback_that_is_one_text_is_its_lines() -> None:
    assert StepError.from_json({"traceback": "a\nb"}).traceback == ("a", "b")
    assert StepError.from_json({"traceback": ["a", None, "b"]}).traceback == ("a", "b")


def test_a_record_is_never_changed() -> None:
    wait = Wait(step="a")
    with pytest.raises(AttributeError):
        wait.step = "b"  # type: ignore[misc]
    assert replace(wait, attempts=1).attempts == 1 and wait.attempts == 0


def test_the_words_of_a_reason() -> None:
    assert [str(each) for each in RollbackReason] == [
        "coordination_unavailable",
        "raised",
        "returned_failure",
        "may_have_run",
        "row_gone",
    ]


def test_every_field_of_every_record_can_be_read() -> None:
    """A field whose type has no reader would fail at the first row, not here."""
    for kind in KINDS:
        kind.from_json({each.name: "1" for each in fields(kind)})
