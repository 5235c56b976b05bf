"""A live Celery worker for tests: real processes, in a group of their own, on the *test* database, that can be killed.

`LiveWorker` starts `python -m reactor_coord.testing.worker`, which lays the test's settings (database names, prefix,
fault points) over the project's and becomes `celery worker`. Nothing of it survives the test process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from reactor_coord.testing import processes
from reactor_coord.testing.guard import Guard

if TYPE_CHECKING:
    from reactor_coord.testing.recorder import Recorder

SPECIFICATION = "REACTOR_COORD_LIVE_WORKER"
STARTUP_SECONDS = 60.0

started: list[LiveWorker] = []
"""Those of the running test: the pytest plugin shows their logs when it fails."""


class WorkerError(RuntimeError):
    """The worker did not start or died; the message ends with its log."""


class LiveWorker:
    """One `celery worker` with a prefork pool. A context manager; `start()` and `stop()` do the same by hand."""

    def __init__(
        self,
        app: str,
        *,
        concurrency: int = 2,
        pool: str = "prefork",
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        faults: Mapping[str, Mapping[str, Any]] | None = None,
        queues: Sequence[str] = (),
        options: Sequence[str] = (),
        recorder: Recorder | None = None,
    ) -> None:
        """Describe the worker.

        Args:
            app: The Celery app, as for `celery -A`.
            concurrency: How many child processes.
            env: Laid over this process's environment.
            settings: Django settings for the worker, JSON-able. `REACTOR_COORD` and `CACHES` are laid over the
                project's; any other name replaces it.
            faults: Fault points to install in the worker, see `reactor_coord.testing.faults`.
            queues: Queues to consume; the app's default queue if empty.
            options: Further arguments to `celery worker`.
            recorder: Is told which processes were killed, so that the bodies they were in count as over.
        """
        self.app = app
        self.concurrency = concurrency
        self._pool = pool
        self._env = dict(env or {})
        self._settings = dict(settings or {})
        self._faults = {point: dict(fault) for point, fault in (faults or {}).items()}
        self._queues = tuple(queues)
        self._options = tuple(options)
        self._recorder = recorder
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._directory = Path()
        self.prefix = str(self._settings.get("REACTOR_COORD", {}).get("KEY_PREFIX", ""))
        self.name = f"live-{uuid.uuid4().hex[:8]}"

    @property
    def pid(self) -> int:
        """The main process, which is also the process group."""
        if self._process is None:
            raise WorkerError("the worker is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the main process exists."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait until it consumes."""
        self._directory = Path(tempfile.mkdtemp(prefix="rc-worker-"))
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "reactor_coord.testing.worker", *self._arguments()],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = Guard(self._process.pid, self._directory)
        started.append(self)
        deadline = time.monotonic() + STARTUP_SECONDS
        while not re.search(r"@\S* ready\.", self.log()):
            if not self.is_running or time.monotonic() > deadline:
                log_text = self.log()
                self.stop(timeout=0)
                raise WorkerError(f"the live worker did not start; its log:\n{log_text[-6000:]}")
            time.sleep(0.02)
        return self

    def stop(self, timeout: float = 10.0) -> None:
        """SIGTERM (a warm shutdown), SIGKILL after `timeout` seconds, and its directory goes. Idempotent."""
        if self._process is not None:
            if timeout and self.is_running:
                self.term()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout)
            self.kill()
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        if self._directory.name:
            self._last_log = self.log()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = Path()
        if self in started:
            started.remove(self)

    def term(self) -> None:
        """SIGTERM to the main process: a warm shutdown, which lets running steps finish. Does not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for the main process to exit; its exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def kill(self) -> None:
        """SIGKILL to the main process and every child at once, as when a machine goes. Waits until they are gone."""
        if self._process is None:
            return
        victims = self._tree()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        processes.wait_until_gone(victims)
        self._tell_gone(victims)

    def children(self) -> list[int]:
        """The pool's processes now, oldest first."""
        return [pid for pid in self._tree() if pid != self.pid]

    def kill_child(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill one pool process (see `children`, or `Recorder.intervals` for the one that runs a body)."""
        os.kill(pid, number)
        if number == signal.SIGKILL:
            processes.wait_until_gone([pid])
            self._tell_gone([pid])

    def pause(self) -> None:
        """SIGSTOP to all of it: a machine that hangs."""
        for pid in self._tree():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        for pid in self._tree():
            os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        """All it has written so far (after `stop()`: all it wrote)."""
        if not self._directory.name:
            return self._last_log
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def log_lines(self, pattern: str) -> list[str]:
        """The lines of the log in which `pattern` (a regular expression) is found."""
        return [line for line in self.log().splitlines() if re.search(pattern, line)]

    def wait_for_log(self, pattern: str, timeout: float = 10.0) -> str:
        """The first line in which `pattern` is found, waiting for it."""
        deadline = time.monotonic() + timeout
        while not (lines := self.log_lines(pattern)):
            if time.monotonic() > deadline:
                raise AssertionError(f"no line of the worker's log has {pattern!r} after {timeout} s")
            time.sleep(0.02)
        return lines[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    _last_log = ""

    @property
    def _log_path(self) -> Path:
        return self._directory / "worker.log"

    def _arguments(self) -> list[str]:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        pool = ["-P", self._pool, "-c", str(self.concurrency), "-n", f"{self.name}@%h", "-l", "INFO"]
        queues = ["-Q", ",".join(self._queues)] if self._queues else []
        return ["-A", self.app, "worker", *pool, *quiet, *queues, *self._options]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        paths = dict.fromkeys([os.getcwd(), *(entry for entry in sys.path if entry)])
        specification = {"databases": _test_databases(), "settings": self._settings}
        own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", SPECIFICATION: json.dumps(specification)}
        if self._faults:
            own["REACTOR_COORD_FAULTS"] = json.dumps(self._faults)
        if "DJANGO_SETTINGS_MODULE" not in kept and (module := _settings_module()):
            own["DJANGO_SETTINGS_MODULE"] = module
        return {**kept, **own, **self._env}

    def _tree(self) -> list[int]:
        return processes.tree(self._process.pid) if self._process is not None else []

    def _tell_gone(self, pids: Sequence[int]) -> None:
        if self._recorder is not None:
            self._recorder.gone(*pids)


def _test_databases() -> dict[str, str]:
    """The names the connections of this process use: inside a test, those of the test databases."""
    from django.db import connections

    return {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}


def _settings_module() -> str:
    from django.conf import settings

    return str(getattr(settings, "SETTINGS_MODULE", ""))


def _lay_over(specification: Mapping[str, Any]) -> None:
    """Before `django.setup()`: nothing has connected or cached a setting yet."""
    from django.conf import settings

    for alias, name in specification["databases"].items():
        settings.DATABASES[alias]["NAME"] = name
    for name, value in specification["settings"].items():
        merged = {**getattr(settings, name, {}), **value} if name in {"REACTOR_COORD", "CACHES"} else value
        setattr(settings, name, merged)


def main(arguments: Sequence[str]) -> None:
    """Become the worker."""
    _lay_over(json.loads(os.environ[SPECIFICATION]))
    from celery.bin.celery import celery

    from reactor_coord.testing import faults

    faults.install_from_environment()
    sys.argv = ["celery", *arguments]
    celery.main(args=list(arguments), prog_name="celery")


if __name__ == "__main__":
    main(sys.argv[1:])
