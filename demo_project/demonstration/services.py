"""The processes around the demo: a Valkey where none is given, a Celery worker. Nothing started here outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from demo_project import place
from reactor_coord.testing.guard import Guard
from reactor_coord.testing.servers import redis_server

READY_SECONDS = 30.0
END_SECONDS = 5.0


class WorkerFailed(Exception):
    """The worker did not start, or ended; the message has the end of its log."""


class Child:
    """One process in a session of its own, killed with everything below it when we are gone, however we go."""

    def __init__(self, command: Sequence[str], log: Path | None, **environment: str) -> None:
        self.log = log
        output = None if log is None else log.open("ab")
        try:
            self._process = subprocess.Popen(
                command,
                cwd=place.BASE_DIR,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()
        self._guard = Guard(self._process.pid)

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def log_end(self) -> str:
        """The last lines it wrote."""
        text = self.log.read_text(errors="replace") if self.log is not None and self.log.exists() else ""
        return "\n".join(text.splitlines()[-25:])

    def end(self, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, then insist; what it left in its group goes too."""
        if self.is_running:
            self._process.send_signal(first)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # nobody of it is left
        self._guard.release()


class Worker(Child):
    """A Celery worker with `processes` prefork children, ready to take work."""

    def __init__(self, processes: int, *, loglevel: str = "INFO") -> None:
        command = [sys.executable, "-m", "celery", "-A", "demo_project", "worker"]
        options = ["--pool", "prefork", "--concurrency", str(processes), "--loglevel", loglevel]
        fewer_words = ["--without-gossip", "--without-mingle"]
        super().__init__([*command, *options, *fewer_words], place.worker_log())

    def wait_until_ready(self) -> None:
        """Return when it takes work. Raises WorkerFailed, with its log."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.log is not None and " ready." in self.log.read_text(errors="replace"):
                return
            self.check()
            time.sleep(0.05)
        raise WorkerFailed(f"the worker was not ready after {READY_SECONDS:g} s; its log ends:\n{self.log_end()}")

    def check(self) -> None:
        """Raise WorkerFailed when it has ended, or when what it works on is gone."""
        if is_orphaned():
            raise WorkerFailed("the process that brought Valkey was killed, and Valkey with it")
        if not self.is_running:
            raise WorkerFailed(f"the worker has ended; its log ends:\n{self.log_end()}")


@contextmanager
def worker(processes: int) -> Iterator[Worker]:
    """A worker for as long as the block lasts."""
    started = Worker(processes)
    try:
        yield started
    finally:
        started.end()


def run_again_with_valkey(arguments: Sequence[str]) -> int:
    """Run this very command in a child that finds a Valkey of our own at `REDIS_URL`; its exit status.

    A second process, because the settings of this one are read already. The terminal's Ctrl-C reaches the child as well:
    here we wait for it, so that the server outlives those who use it.
    """
    with redis_server() as server, place.address_published(server.url):
        child = subprocess.Popen(
            [sys.executable, str(place.BASE_DIR / "manage.py"), *arguments],
            env={**os.environ, "REDIS_URL": server.url, place.PARENT: str(os.getpid())},
        )
        try:
            return _waited(child)
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


def is_orphaned() -> bool:
    """Whether the process that brought our Valkey is gone, and with it the Valkey."""
    parent = os.environ.get(place.PARENT)
    return parent is not None and os.getppid() != int(parent)


def _waited(child: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def end_on_sigterm() -> None:
    """SIGTERM ends us as Ctrl-C does: through every `finally`."""

    def interrupt(number: int, frame: FrameType | None) -> Any:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, interrupt)
