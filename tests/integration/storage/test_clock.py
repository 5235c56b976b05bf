"""What is written into rows for others to compare: on PostgreSQL the server's time, whatever this process's clock says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from reactor_coord.storage import clock, store
from tests.integration.storage.rows import ready

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite is one host, and has that one's clock"),
]

NEAR = timedelta(seconds=0.5)


@pytest.fixture(autouse=True)
def _nothing_heard() -> Iterator[None]:
    clock._carried.clear()
    yield
    clock._carried.clear()


@pytest.mark.parametrize("skew", [90, -90])
def test_b063_the_present_is_the_servers(skew: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(seconds=skew))
    assert abs(clock.present() - real()) < NEAR
    execution = ready()
    assert execution.resume_at is not None
    seconds = (execution.resume_at - real()).total_seconds()
    assert 0 < seconds < 60


def test_it_is_asked_for_once_and_a_claim_brings_it_along() -> None:
    execution = ready()
    clock._carried.clear()
    store.claim(execution.id, worker="w")
    with CaptureQueriesContext(connection) as queries:
        before = clock.present()
        assert clock.present() >= before
    assert len(queries) == 0


def test_an_answer_that_was_long_on_its_way_sets_nothing_back() -> None:
    present = clock.read("default")
    clock.heard("default", present - timedelta(seconds=3))
    assert clock.present() >= present


def test_what_was_heard_long_ago_is_asked_anew() -> None:
    clock.read("default")
    moment, at = clock._carried["default"]
    clock._carried["default"] = (moment + timedelta(seconds=40), at - clock.STALE_SECONDS - 1)
    assert abs(clock.present() - timezone.now()) < NEAR


def test_a_server_whose_clock_is_set_back_is_followed() -> None:
    clock.read("default")
    moment, at = clock._carried["default"]
    clock._carried["default"] = (moment + timedelta(seconds=60), at - clock.FRESH_SECONDS - 1)
    clock.read("default")
    assert abs(clock.present() - timezone.now()) < NEAR


def test_a_naive_project_keeps_its_own(settings: object) -> None:
    settings.USE_TZ = False  # type: ignore[attr-defined]
    assert isinstance(clock.present(), datetime)
    assert clock.present().tzinfo is None
