"""Several lanes beside each other, from outside: start them, hand out points, and take what they answer."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from reactor_coord.testing.guard import Guard
from tests.live.chaos.lane import SPECIFICATION, Answer

Point = tuple[str, int | None]
"""A variant and the number of an effect; None: nobody dies, the effects are counted."""


class Lane:
    """One lane process. It and all that it forks end with this process."""

    def __init__(self, databases: Mapping[str, str], *, migrates: bool = False) -> None:
        """`databases`: the name of each alias' database, which is the lane's own; `migrates`: it is still empty."""
        specification = json.dumps({"databases": dict(databases), "migrates": migrates})
        paths = dict.fromkeys([os.getcwd(), *(entry for entry in sys.path if entry)])
        own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", SPECIFICATION: specification}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.chaos.lane"],
            env={"DJANGO_SETTINGS_MODULE": "tests.settings", **kept, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            text=True,
        )
        self._guard = Guard(self._process.pid)

    def play(self, point: Point, *, keep: bool = False) -> Answer:
        """Have it play a point; `keep`: its journal comes with the answer also when nothing is wrong."""
        variant, number = point
        self._wait_until_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"variant": variant, "point": number, "keep": keep}) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._line()))

    def close(self) -> None:
        """End it and what it forked. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
        self._process.wait()
        self._guard.release()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    _is_ready = False

    def _wait_until_ready(self) -> None:
        if not self._is_ready:
            self._line()
            self._is_ready = True

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            told = self._errors.read().decode(errors="replace")
            code = self._process.wait()
            raise RuntimeError(f"a lane of the crash enumeration ended ({code}); it wrote:\n{told[-6000:]}")
        return line


def play_all(lanes: Sequence[Lane], points: Iterable[Point], tell: Callable[[Answer], None]) -> list[Answer]:
    """Play these points on these lanes, telling each answer as it comes (in this thread); all answers, in order of points."""
    wanted = list(points)
    orders: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[int, Answer | BaseException]] = queue.SimpleQueue()
    for index in range(len(wanted)):
        orders.put(index)

    def serve(lane: Lane) -> None:
        for index in _drained(orders):
            try:
                answers.put((index, lane.play(wanted[index])))
            except BaseException as error:  # raised in the caller's thread
                return answers.put((index, error))

    for lane in lanes:
        threading.Thread(target=serve, args=(lane,), daemon=True).start()
    found: dict[int, Answer] = {}
    while len(found) < len(wanted):
        index, answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        found[index] = answer
        tell(answer)
    return [found[index] for index in sorted(found)]


def _drained(orders: queue.SimpleQueue[int]) -> Iterator[int]:
    while True:
        try:
            yield orders.get_nowait()
        except queue.Empty:
            return


def spread(effects: Sequence[Sequence[str]], size: int) -> list[int]:
    """Numbers of `size` of these effects, from the first to the last of them.

    Of a transaction only the end counts: who dies before a statement of it dies before all of it.
    """
    numbers = [number for number, (kind, _) in enumerate(effects, start=1) if kind != "row"]
    return [numbers[(2 * each + 1) * len(numbers) // (2 * size)] for each in range(size)]


def own_databases(count: int, directory: Path, postgres_url: str = "") -> list[dict[str, str]]:
    """Names of as many fresh databases: files in `directory`, or made on that PostgreSQL server."""
    if not postgres_url:
        return [{"default": str(directory / f"lane-{number}.sqlite3")} for number in range(count)]
    import psycopg

    names = [f"chaos_lane_{number}" for number in range(count)]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
    return [{"default": name} for name in names]
