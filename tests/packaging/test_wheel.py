"""The built wheel is what is tested: what is inside, and what importing it does.

It is unpacked into a folder of its own and imported by a fresh interpreter that finds it there first; the dependencies come
from the environment of the test run. What needs a database, a Redis or a worker is for the other folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "reactor_coord"
HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without isolation, so that no package index is asked: the build backend is one of the `dev` extra."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def ask(script: str, unpacked: Path, folder: Path) -> dict[str, Any]:
    """Run a script of this folder in a fresh interpreter that imports the unpacked wheel; its last line is JSON."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO_", "PYTEST_", "RC_"))}
    environment["PYTHONPATH"] = str(unpacked)
    ran = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:reactor_coord", str(HERE / "scripts" / script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert Path(answer["imported_from"]).is_relative_to(unpacked), "the wheel was not what was imported"
    return answer


def test_the_wheel_carries_every_file_of_the_package(names: frozenset[str]) -> None:
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert sources <= names


@pytest.mark.parametrize(
    ("folder", "suffix"),
    [
        ("reactor_coord/coordination/", ".lua"),
        ("reactor_coord/storage/sql/", ".sql"),
        ("reactor_coord/templates/", ".html"),
        ("reactor_coord/migrations/", ".py"),
        ("reactor_coord/management/commands/", ".py"),
    ],
)
def test_what_is_no_module_ships_too(names: frozenset[str], folder: str, suffix: str) -> None:
    assert any(name.startswith(folder) and name.endswith(suffix) for name in names)


def test_the_wheel_says_that_it_is_typed(names: frozenset[str]) -> None:
    assert "reactor_coord/py.typed" in names


def test_nothing_but_the_package_is_in_the_wheel(names: frozenset[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"reactor_coord"}


def test_every_folder_with_modules_is_a_package() -> None:
    """A namespace package works from a checkout and goes missing in somebody's build."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_the_metadata_names_the_floor_and_the_extras(metadata: Message) -> None:
    assert metadata["Name"] == "django-reactor-coord"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert {"commands", "telemetry", "fast", "test"} <= set(metadata.get_all("Provides-Extra", []))
    required = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(each.split(">=")[0].lower() for each in required) == [
        "celery",
        "django",
        "django-filter",
        "django-redis",
        "djangorestframework",
        "drf-spectacular",
        "packaging",
        "pydantic",
    ]


def test_the_pytest_plugin_is_found_by_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/entry_points.txt"))
        assert "reactor_coord = reactor_coord.testing.plugin" in archive.read(name).decode()


def test_b210_importing_the_app_starts_no_threads_and_opens_no_connections(unpacked: Path, tmp_path: Path) -> None:
    """Neither the import nor `AppConfig.ready` may: a pool that forks or spawns afterwards would inherit them."""
    answer = ask("import_and_set_up.py", unpacked, tmp_path)
    assert answer["at_import"] == []
    assert answer["at_setup"] == []
    assert answer["threads"] == 1


def test_importing_the_root_imports_no_model_and_no_celery(unpacked: Path, tmp_path: Path) -> None:
    answer = ask("import_and_set_up.py", unpacked, tmp_path)
    assert answer["heavy_modules_at_import"] == []


def test_the_app_works_without_any_extra(unpacked: Path, tmp_path: Path) -> None:
    """Every module outside `reactor_coord.testing` imports where no extra is installed."""
    answer = ask("import_without_extras.py", unpacked, tmp_path)
    assert answer["failed"] == {}
    assert answer["imported"] > 10
