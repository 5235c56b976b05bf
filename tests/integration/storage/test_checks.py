"""`manage.py check` says what is wrong with the settings, the database and Redis, and what to do about it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.test import override_settings

from reactor_coord.runtime.dispatch import dispatcher


class Deaf:
    """A dispatcher of an older contract."""

    def send(self, execution_id: str) -> None: ...


class Needy:
    """One that cannot be made."""

    def __init__(self, url: str) -> None: ...

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None: ...


def ids(databases: list[str] | None = None) -> list[str]:
    """The ids of what the checks of the app find now."""
    return [str(each.id) for each in run_checks(tags=["reactor_coord"], databases=databases)]


def test_a_sound_project_passes_also_with_its_redis() -> None:
    assert ids() == []
    assert ids(["default"]) == []


def test_an_unknown_key_ends_the_check_with_a_suggestion(settings: Any) -> None:
    settings.REACTOR_COORD = {"LEASE_TLL": 1}
    with pytest.raises(SystemCheckError) as caught:
        call_command("check", tags=["reactor_coord"], stderr=StringIO())
    assert "reactor_coord.E002" in str(caught.value)
    assert "HINT: Did you mean 'LEASE_TTL'?" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "identifier"),
    [
        ([1], "E001"),
        ({"QUEU": "x"}, "E002"),
        ({"LEASE_TTL": "long"}, "E003"),
        ({"SNOOZE_BASE_DELAY": 100}, "E004"),
        ({"REDIS_ALIAS": "nowhere"}, "E005"),
        ({"REDIS_ALIAS": "memory"}, "E006"),
        ({"DISPATCHER": "no.such.Dispatcher"}, "E007"),
        ({"API_PERMISSION_CLASSES": ["no.Such"]}, "E007"),
        ({"DISPATCHER": "os.system"}, "E009"),
        ({"DISPATCHER": "decimal.Decimal"}, "E009"),
        ({"DISPATCHER": "tests.integration.storage.test_checks.Deaf"}, "E009"),
        ({"DISPATCHER": "tests.integration.storage.test_checks.Needy"}, "E009"),
        ({"API_PERMISSION_CLASSES": ["os.system"]}, "E009"),
        ({"API_PERMISSION_CLASSES": [dict]}, "E009"),
    ],
)
def test_each_mistake_has_its_id(settings: Any, values: Any, identifier: str) -> None:
    caches = {**settings.CACHES, "memory": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    if isinstance(values, dict):
        values = {**settings.REACTOR_COORD, **values}
    with override_settings(CACHES=caches, REACTOR_COORD=values):
        assert ids(["default"]) == [f"reactor_coord.{identifier}"]


def test_a_rate_limit_that_the_settings_lack_is_told_with_the_place_that_names_it(settings: Any) -> None:
    limits = {name: limit for name, limit in settings.REACTOR_COORD["RATE_LIMITS"].items() if name != "courier"}
    with override_settings(
        REACTOR_COORD={**settings.REACTOR_COORD, "RATE_LIMITS": {**limits, "curier": {"second": 5}}}
    ):
        messages = run_checks(tags=["reactor_coord"])
    assert {message.id for message in messages} == {"reactor_coord.E008"}
    assert any(
        "shipping.reactors." in message.msg and "'courier'" in message.msg and "'curier'" in message.msg
        for message in messages
    )


def test_sqlite_is_told_what_several_workers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only for SQLite")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    assert ids() == ["reactor_coord.W001", "reactor_coord.W002"]


def test_an_unreachable_redis_is_a_warning_and_only_asked_when_databases_are(settings: Any) -> None:
    nowhere = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    caches = {**settings.CACHES, "nowhere": nowhere}
    with override_settings(CACHES=caches, REACTOR_COORD={**settings.REACTOR_COORD, "REDIS_ALIAS": "nowhere"}):
        assert ids() == []
        [message] = run_checks(tags=["redis"], databases=["default"])
    assert message.id == "reactor_coord.W003"
    assert "CACHES['nowhere'] cannot be reached" in message.msg


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"redis_version": "7.0.1", "maxmemory_policy": "noeviction"}, []),
        ({"redis_version": "7.0.1", "maxmemory_policy": "allkeys-lru"}, ["W004"]),
        ({"redis_version": "6.0.9", "maxmemory_policy": "noeviction"}, ["W005"]),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0", "maxmemory_policy": "volatile-lru"}, ["W004", "W005"]),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, []),
    ],
)
def test_a_server_that_may_lose_holds_is_named(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, str], found: list[str]
) -> None:
    class Server:
        def info(self, section: str) -> dict[str, str]:
            return {key: value for key, value in info.items() if key.startswith("max") == (section == "memory")}

    class Cluster:
        def info(self, section: str) -> dict[str, dict[str, str]]:
            return {"a:1": Server().info(section)}

    for server in (Server(), Cluster()):
        monkeypatch.setattr("django_redis.get_redis_connection", lambda alias, server=server: server)
        assert ids(["default"]) == [f"reactor_coord.{each}" for each in found]


def test_u57_a_dispatcher_that_cannot_send_is_named_where_it_is_first_needed(settings: Any) -> None:
    settings.REACTOR_COORD = {**settings.REACTOR_COORD, "DISPATCHER": "os.system"}
    with pytest.raises(ImproperlyConfigured, match=r"'os\.system', which is no class with a method send"):
        dispatcher()
