"""Settings: defaults, types, and a message a person can act on for everything that is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from reactor_coord import conf


def test_every_setting_has_its_documented_default(settings: Any) -> None:
    settings.REACTOR_COORD = {}
    current = conf.settings()

    assert (current.REDIS_ALIAS, current.KEY_PREFIX, current.QUEUE) == ("default", "rc", None)
    assert (current.SNOOZE_BASE_DELAY, current.SNOOZE_MAX_DELAY, current.SNOOZE_JITTER) == (5, 60, 5)
    assert (current.SNOOZE_MAX_ATTEMPTS, current.HANDOFF_GRACE, current.LEASE_TTL) == (20, 2, 60)
    assert (current.SWEEP_INTERVAL, current.RETENTION_DAYS, current.MAX_PAYLOAD_BYTES) == (5, 30, 1_000_000)
    assert (current.ASYNC_WAIT_TIMEOUT, current.ASYNC_PARK_TIMEOUT, current.RATE_LIMITS) == (30, 3600, {})
    assert current.MAX_WORKER_LOSSES == 3
    assert current.DISPATCHER == "reactor_coord.workers.dispatcher.CeleryDispatcher"


def test_settings_are_cached_and_follow_a_change(settings: Any) -> None:
    settings.REACTOR_COORD = {"LEASE_TTL": 30}
    first = conf.settings()
    assert (first.LEASE_TTL, type(first.LEASE_TTL)) == (30.0, float)
    assert conf.settings() is first

    settings.REACTOR_COORD = {"LEASE_TTL": 31}

    assert conf.settings().LEASE_TTL == 31
    with pytest.raises(FrozenInstanceError):
        first.LEASE_TTL = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"LEASE_TLL": 1}, "unknown key 'LEASE_TLL'", "Did you mean 'LEASE_TTL'?"),
        ({"lease_ttl": 1}, "unknown key 'lease_ttl'", "Did you mean 'LEASE_TTL'?"),
        ({"XYZ": 1}, "unknown key 'XYZ'", "Known keys: API_PERMISSION_CLASSES, "),
        ({"LEASE_TTL": 0}, "['LEASE_TTL'] is 0", "a number of seconds above 0"),
        ({"LEASE_TTL": "60"}, "['LEASE_TTL'] is '60'", "a number of seconds above 0"),
        ({"LEASE_TTL": True}, "['LEASE_TTL'] is True", "a number of seconds above 0"),
        ({"LEASE_TTL": float("inf")}, "is inf", "a number of seconds above 0"),
        ({"LEASE_TTL": float("nan")}, "is nan", "a number of seconds above 0"),
        ({"LEASE_TTL": None}, "is None", "a number of seconds above 0"),
        ({"SNOOZE_JITTER": -1}, "is -1", "a number of seconds of at least 0"),
        ({"SNOOZE_MAX_ATTEMPTS": 1.5}, "is 1.5", "a whole number of at least 1, or None"),
        ({"MAX_PAYLOAD_BYTES": 1}, "is 1.", "a whole number of at least 1000"),
        ({"KEY_PREFIX": "a{b}"}, "is 'a{b}'", "braces would change the Redis slot"),
        ({"KEY_PREFIX": ""}, "is ''", "1 to 64"),
        ({"QUEUE": 7}, "is 7", "a string that is not empty, or None"),
        ({"DISPATCHER": "Dispatcher"}, "is 'Dispatcher'", "dotted path"),
        ({"RATE_LIMITS": ["stripe"]}, "['RATE_LIMITS']", "a dict of names"),
        ({"RATE_LIMITS": {"stripe": {}}}, "['RATE_LIMITS']", "a dict of names"),
        ({"RATE_LIMITS": {"stripe": {"limit": 3, "period": "second"}}}, "['RATE_LIMITS']", "such as {'stripe'"),
        ({"RATE_LIMITS": {"stripe": {"limit": {"second": 3}}}}, "['RATE_LIMITS']", "such as {'stripe'"),
        ({"RATE_LIMITS": {"stripe": {"limits": {}}}}, "['RATE_LIMITS']", "second, minute, hour, day"),
        ({"RATE_LIMITS": {"stripe": {"secnd": 3}}}, "['RATE_LIMITS']", "second, minute, hour, day"),
        ({"RATE_LIMITS": {"stripe": {"second": 0}}}, "['RATE_LIMITS']", "second, minute, hour, day"),
        ({"RATE_LIMITS": {"stripe": {"second": 3, "algorithm": "leaky"}}}, "['RATE_LIMITS']", "'sliding_window'"),
        ({"API_PERMISSION_CLASSES": "a.B"}, "is 'a.B'", "a list of dotted paths"),
        ({"SNOOZE_BASE_DELAY": 90}, "'SNOOZE_MAX_DELAY'] (60) is less than 'SNOOZE_BASE_DELAY' (90)", "Raise"),
        ({"LEASE_TTL": 10**400}, "['LEASE_TTL'] is 1000", "at most 315,360,000"),
        ({"LEASE_TTL": 10**5000}, "is a number of thousands of digits", "at most 315,360,000"),
        ({"SWEEP_INTERVAL": 1e300}, "is 1e+300", "at most 315,360,000"),
        ({"RETENTION_DAYS": 1e9}, "is 1000000000.0", "a number of days above 0 and of at most 3,650, or None"),
        ({"SNOOZE_MAX_ATTEMPTS": 10**400}, "['SNOOZE_MAX_ATTEMPTS'] is 1000", "at most 1,000,000,000,000, or None"),
        ({"RATE_LIMITS": {"stripe": {10**400: 3}}}, "['RATE_LIMITS']", "second, minute, hour, day"),
        ({"RATE_LIMITS": {"stripe": {"second": 10**400}}}, "['RATE_LIMITS']", "second, minute, hour, day"),
        ([], "REACTOR_COORD is a list, not a dict", "Write REACTOR_COORD = {...}"),
    ],
)
def test_u57_what_is_wrong_is_said_with_the_way_out(settings: Any, values: Any, message: str, hint: str) -> None:
    settings.REACTOR_COORD = values

    [problem] = conf.problems(values)
    assert message in problem.message
    assert hint in problem.hint
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.settings()
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    assert len(conf.problems({"LEASE_TTL": 0, "QUEUE": "", "FOO": 1})) == 3


@pytest.mark.parametrize("values", [{"SNOOZE_MAX_ATTEMPTS": None}, {"RETENTION_DAYS": None}, {"QUEUE": "slow"}])
def test_what_may_be_none_or_given_is(values: Any) -> None:
    assert conf.problems(values) == []


def test_every_form_of_a_named_limit_is_good() -> None:
    forms: list[dict[Any, Any]] = [
        {"second": 3, "minute": 100},
        {"second": 3, "algorithm": "sliding_window"},
        {"limits": {"day": 5}},
        {"limits": {10: 5, "2.5": 1}, "algorithm": "fixed_window"},
        {0.5: 1},
    ]
    assert conf.problems({"RATE_LIMITS": {f"n{number}": form for number, form in enumerate(forms)}}) == []
