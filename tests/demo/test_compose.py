"""The commands of docker-compose.yml are run, with its environment and what its image has installed. Only the engine is left out.

Addresses that name services lead to a Valkey and a PostgreSQL of the test's. Whatever of this environment the image would not
have cannot be imported. What stays unproven is the engine's part: building, networks, volumes, health intervals.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from reactor_coord.testing.guard import Guard
from reactor_coord.testing.servers import PostgresServer, ValkeyServer, free_port
from tests.support import compose

pytestmark = [pytest.mark.live, pytest.mark.slow]

READY_SECONDS = 60.0
PAYMENT = "demo_project.payments.reactors.Payment"
FOREIGN = (
    "REDIS_URL",
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "DEMO_",
    "RC_TEST_",
    "REACTOR_COORD_",
    "PYTEST_",
    "PYTHONPATH",
)

# Put on the path of every process: as if what the image does not install were not there.
NOT_INSTALLED = """
import sys

ABSENT = frozenset({absent!r})


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}} (the image does not install it)", name=name)


sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[ValkeyServer, PostgresServer]]:
    """What the file calls valkey and postgres."""
    with ValkeyServer() as valkey, PostgresServer() as postgres:
        yield valkey, postgres


class Stand:
    """One service at a time, as its container would run it."""

    def __init__(self, servers: tuple[ValkeyServer, PostgresServer], directory: Path) -> None:
        self.services = compose.services()
        self.directory = directory
        self.port = free_port()
        self._valkey, self._postgres = servers
        self._databases: dict[str, str] = {}
        path = directory / "path"
        path.mkdir()
        absent = compose.absent_modules(compose.dockerfile(self.services["web"]))
        (path / "sitecustomize.py").write_text(NOT_INSTALLED.format(absent=absent))

    def environment(self, name: str) -> dict[str, str]:
        """The service's own, its addresses where the servers are."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        given: Mapping[str, str] = self.services[name]["environment"]
        redis = urlsplit(given["REDIS_URL"])
        own = {
            **given,
            "REDIS_URL": redis._replace(netloc=f"127.0.0.1:{self._valkey.port}").geturl(),
            "DATABASE_URL": self._database(urlsplit(given["DATABASE_URL"]).hostname or ""),
            "DEMO_DIR": str(self.directory / name),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.directory / "path"),
            "HOSTNAME": socket.gethostname(),
        }
        return {**kept, **own}

    def _database(self, host: str) -> str:
        if host not in self._databases:
            name = f"compose_{uuid.uuid4().hex[:8]}"
            with psycopg.connect(self._postgres.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
            self._databases[host] = self._postgres.database_url(name)
        return self._databases[host]

    def argv(self, words: list[str]) -> list[str]:
        """The port the file names is another here: several of these may run on one machine."""
        return [re.sub(r"\b8000\b", str(self.port), word) for word in words]

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[Path]:
        """Run the service's command until the end of the block; its log, once it is healthy."""
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.argv(compose.argv(self.services[name]["command"])),
                cwd=compose.ROOT,
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            guard = Guard(process.pid)
        try:
            self._wait_until_healthy(name, process, log)
            yield log
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
            guard.release()

    def _wait_until_healthy(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + READY_SECONDS
        asking = self.argv(compose.health_argv(self.services[name]))
        while True:
            asked = subprocess.run(
                asking, cwd=compose.ROOT, env=self.environment(name), capture_output=True, check=False
            )
            if asked.returncode == 0:
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{name} was not healthy: {asked.stderr.decode()}\n{log.read_text()}")
            time.sleep(0.2)


@pytest.fixture
def stand(servers: tuple[ValkeyServer, PostgresServer], tmp_path: Path) -> Stand:
    return Stand(servers, tmp_path)


def _manage(stand: Stand, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["python", "manage.py", *arguments],
        cwd=compose.ROOT,
        env=stand.environment(name),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_u93_the_site_and_its_worker_become_healthy_and_work_together(stand: Stand) -> None:
    with stand.running("web") as web:
        assert web.read_text().count("password admin") == 1, "seeded once"
        with stand.running("worker"):
            inputs = ["--input", "account_id=1", "--input", "amount=1.50"]
            done = _manage(stand, "web", "run_reactor", PAYMENT, *inputs, "--background", "--wait")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "completed" in done.stdout


def test_u93_the_show_runs_by_the_files_command(stand: Stand) -> None:
    """One part of it: the whole of it is `test_show`'s."""
    command = [*compose.argv(stand.services["demo"]["command"]), "--part", "contended"]
    done = subprocess.run(
        command,
        cwd=compose.ROOT,
        env=stand.environment("demo"),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything was as claimed" in done.stdout


def test_what_the_image_does_not_install_cannot_be_imported_here(stand: Stand) -> None:
    for module, is_there in (("django", True), ("kombu.transport.redis", True), ("pytest", False), ("psutil", False)):
        tried: Any = subprocess.run(
            ["python", "-c", f"import {module}"],
            env=stand.environment("web"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (tried.returncode == 0) is is_there, f"{module}: {tried.stderr}"
