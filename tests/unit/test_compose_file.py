"""docker-compose.yml and its Dockerfile say what the demo's settings read and the app needs. Parsed here; what they run is run
by tests/demo/test_compose.py. Docker is no need of the checks.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import compose as files

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("web", "worker", "demo")
SERVERS = ("valkey", "postgres", "demo-postgres")
KEEPING = ("valkey", "postgres")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    """The file with its anchors and merge keys resolved."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def dockerfile(compose: Mapping[str, Any]) -> str:
    """The one image that all of them run."""
    (text,) = {files.dockerfile(compose["services"][name]) for name in BUILT}
    return text


def test_the_stand_is_a_web_site_a_worker_the_show_and_their_servers(compose: Mapping[str, Any]) -> None:
    assert sorted(compose["services"]) == sorted((*BUILT, *SERVERS))
    assert {compose["services"][name]["image"] for name in BUILT} == {"reactor-coord-demo"}


@pytest.mark.parametrize("name", ["web", "worker", *SERVERS])
def test_every_service_says_when_it_is_healthy(compose: Mapping[str, Any], name: str) -> None:
    healthcheck = compose["services"][name]["healthcheck"]
    assert healthcheck["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= set(healthcheck)


def test_whoever_needs_a_service_waits_for_its_health(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    for name in BUILT:
        waits_for = services[name]["depends_on"]
        assert waits_for, name
        assert {each["condition"] for each in waits_for.values()} == {"service_healthy"}
    assert {"valkey", "postgres"} <= set(services["web"]["depends_on"])
    assert "web" in services["worker"]["depends_on"], "the worker needs the tables that web's migrate makes"


@pytest.mark.parametrize("name", BUILT)
def test_addresses_name_services_that_are_waited_for(compose: Mapping[str, Any], name: str) -> None:
    services = compose["services"]
    environment = services[name]["environment"]
    host = re.search(r"@([\w-]+):5432/", environment["DATABASE_URL"])
    assert host is not None
    database = services[host[1]]["environment"]
    assert {"valkey", host[1]} <= set(services[name]["depends_on"])
    assert environment["REDIS_URL"].startswith("redis://valkey:6379/")
    assert environment["DATABASE_URL"] == (
        f"postgres://{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}@{host[1]}:5432/{database['POSTGRES_DB']}"
    )


def test_the_settings_read_what_the_environment_says(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    assert services["web"]["environment"] == services["worker"]["environment"]
    settings = (ROOT / "demo_project" / "settings.py").read_text(encoding="utf-8")
    for variable in {name for each in BUILT for name in services[each]["environment"]}:
        assert re.search(rf"""["']{variable}["']""", settings), f"demo_project/settings.py does not read {variable}"


def test_u93_no_command_is_given_twice(compose: Mapping[str, Any]) -> None:
    for name in BUILT:
        parts = [part.strip() for part in files.argv(compose["services"][name]["command"])[-1].split("&&")]
        assert len(parts) == len(set(parts)), f"{name} runs one of these twice: {parts}"


def test_u93_the_show_is_one_command_and_none_of_the_stands_own(compose: Mapping[str, Any]) -> None:
    """`docker compose run --rm demo`; `up` leaves it out, and its executions are out of the reach of the other worker."""
    services = compose["services"]
    demo = services["demo"]
    assert files.argv(demo["command"]) == ["python", "manage.py", "demo"]
    assert demo["restart"] == "no", "a show that ended badly must not begin again by itself"
    assert demo["init"] is True
    for name, service in services.items():
        assert service.get("profiles", []) == (["demo"] if name.startswith("demo") else []), name
    assert {each for each in demo["depends_on"] if "profiles" in services[each]} == {"demo-postgres"}
    for address in ("REDIS_URL", "DATABASE_URL"):
        assert demo["environment"][address] != services["worker"]["environment"][address]


def test_valkey_evicts_nothing(compose: Mapping[str, Any]) -> None:
    assert "--maxmemory-policy noeviction" in compose["services"]["valkey"]["command"]


def test_what_must_outlive_a_container_is_on_a_named_volume(compose: Mapping[str, Any]) -> None:
    for name in KEEPING:
        (volume,) = compose["services"][name]["volumes"]
        assert volume.split(":")[0] in compose["volumes"]
    assert compose["services"]["demo-postgres"]["volumes"] == []


def test_images_carry_a_version_and_the_build_names_a_file_that_exists(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    for name in SERVERS:
        assert re.fullmatch(r"[\w/.-]+:\d[\w.-]*", services[name]["image"])
    for name in BUILT:
        assert (ROOT / services[name]["build"]["dockerfile"]).is_file()


def test_u93_the_dockerfile_copies_files_that_exist_and_installs_extras_that_exist(dockerfile: str) -> None:
    for copied in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists(), f"the Dockerfile copies {name}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', dockerfile)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (version,) = re.findall(r"^FROM python:(\d+\.\d+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_u93_the_image_runs_as_a_user_who_may_write_where_the_demo_keeps_its_things(dockerfile: str) -> None:
    (workdir,) = re.findall(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)
    (user,) = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert user != "root"
    assert f"chown {user} {workdir}" in dockerfile
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ".demo" in ignored, "a folder of another owner would come with the image"


def test_u93_the_readme_says_how_to_run_it(compose: Mapping[str, Any]) -> None:
    for page in ("README.md", "docs/demo.md"):
        assert "docker compose run --rm demo" in (ROOT / page).read_text(encoding="utf-8"), page
