"""docker-compose.yml says what the demo's settings read and the app needs. Parsed, not run: Docker is no need of the checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("web", "worker", "valkey", "postgres")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    """The file with its anchors and merge keys resolved."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_the_stand_is_a_web_site_a_worker_a_valkey_and_a_postgresql(compose: Mapping[str, Any]) -> None:
    assert sorted(compose["services"]) == sorted(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_when_it_is_healthy(compose: Mapping[str, Any], name: str) -> None:
    healthcheck = compose["services"][name]["healthcheck"]
    assert healthcheck["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= set(healthcheck)


def test_whoever_needs_a_service_waits_for_its_health(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    for name in ("web", "worker"):
        waits_for = services[name]["depends_on"]
        assert {"valkey", "postgres"} <= set(waits_for)
        assert {each["condition"] for each in waits_for.values()} == {"service_healthy"}
    assert "web" in services["worker"]["depends_on"], "the worker needs the tables that web's migrate makes"


def test_web_and_worker_share_one_environment_that_the_settings_read(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    environment = services["web"]["environment"]
    assert environment == services["worker"]["environment"]
    settings = (ROOT / "demo_project" / "settings.py").read_text(encoding="utf-8")
    for variable in environment:
        assert re.search(rf"""["']{variable}["']""", settings), f"demo_project/settings.py does not read {variable}"


def test_addresses_name_services_of_this_file(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    environment = services["web"]["environment"]
    database = services["postgres"]["environment"]
    assert environment["REDIS_URL"].startswith("redis://valkey:6379/")
    assert environment["DATABASE_URL"] == (
        f"postgres://{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}@postgres:5432/{database['POSTGRES_DB']}"
    )


def test_valkey_evicts_nothing(compose: Mapping[str, Any]) -> None:
    assert "--maxmemory-policy noeviction" in compose["services"]["valkey"]["command"]


def test_what_must_outlive_a_container_is_on_a_named_volume(compose: Mapping[str, Any]) -> None:
    for name in ("valkey", "postgres"):
        (volume,) = compose["services"][name]["volumes"]
        assert volume.split(":")[0] in compose["volumes"]


def test_images_carry_a_version_and_the_build_names_a_file_that_exists(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    for name in ("valkey", "postgres"):
        assert re.fullmatch(r"[\w/.-]+:\d[\w.-]*", services[name]["image"])
    for name in ("web", "worker"):
        assert (ROOT / services[name]["build"]["dockerfile"]).is_file()
