"""A countdown is a time of day by the sender's clock: the receiver waits no longer than the countdown by his own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.app.task import Context

from reactor_coord.workers.arriving import COUNTDOWN, SENDER, bound_wait, sender_of


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def left(headers: dict[str, object]) -> float:
    return (datetime.fromisoformat(str(headers["eta"])) - datetime.now(UTC)).total_seconds()


def test_b063_a_sender_whose_clock_is_ahead_keeps_nobody_waiting() -> None:
    headers: dict[str, object] = {"eta": in_seconds(184), COUNTDOWN: 4.0}
    bound_wait(headers)
    assert 3.5 < left(headers) <= 4


def test_a_message_that_was_long_on_its_way_waits_only_for_what_is_left() -> None:
    eta = in_seconds(1)
    headers: dict[str, object] = {"eta": eta, COUNTDOWN: 4.0}
    bound_wait(headers)
    assert headers["eta"] == eta


@pytest.mark.parametrize(
    "headers", [{}, {"eta": None, COUNTDOWN: 4.0}, {"eta": "soon", COUNTDOWN: 4.0}, {"eta": in_seconds(99)}]
)
def test_what_has_no_countdown_is_left_alone(headers: dict[str, object]) -> None:
    before = dict(headers)
    bound_wait(headers)
    assert headers == before


@pytest.mark.parametrize(
    "brought, read",
    [
        ({"traceparent": "00-ab-cd-01"}, {"traceparent": "00-ab-cd-01"}),
        ({"traceparent": "x" * 5000, "tracestate": "a=b"}, {"tracestate": "a=b"}),
        ({"traceparent": 7, 3: "x"}, {}),
        (["traceparent"], {}),
        ("traceparent", {}),
        (None, {}),
    ],
)
def test_u96_of_what_a_message_says_of_its_sender_only_short_texts_are_read(brought: Any, read: dict[str, str]) -> None:
    assert sender_of(Context({SENDER: brought})) == read


def test_u96_a_message_of_an_older_sender_names_none() -> None:
    assert sender_of(Context({"id": "1"})) == {}
