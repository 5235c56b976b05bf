"""When which body ran, as the bodies themselves saw it: what the demo proves its claims by.

One line of JSON per mark, appended in one write, so that several processes may write at once and a killed one leaves what
it had begun. Off unless `DEMO_JOURNAL` names the file. Nothing of `reactor_coord` writes or reads it: it is the witness.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mark:
    """One line: `mark` is begin, end, or what a body says in between; `at` in Unix seconds."""

    mark: str
    body: str
    execution: str
    account: int
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Span:
    """One body that ran to its end."""

    body: str
    execution: str
    account: int
    pid: int
    begin: float
    end: float

    def overlap(self, other: Span) -> float:
        """Seconds for which both ran; zero or less when they did not."""
        return min(self.end, other.end) - max(self.begin, other.begin)


def note(mark: str, body: str, execution: str, account: int) -> None:
    """Write one mark down."""
    path = os.environ.get("DEMO_JOURNAL")
    if not path:
        return
    line = {
        "mark": mark,
        "body": body,
        "execution": execution,
        "account": account,
        "pid": os.getpid(),
        "at": time.time(),
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


@contextmanager
def witnessed(body: str, execution: str, account: int) -> Iterator[None]:
    """Mark begin and end of a body, however it ends."""
    note("begin", body, execution, account)
    try:
        yield
    finally:
        note("end", body, execution, account)


def read(path: Path) -> list[Mark]:
    """Every whole line so far."""
    if not path.exists():
        return []
    return [Mark(**json.loads(line)) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def spans(marks: list[Mark]) -> list[Span]:
    """Begin and end put together, in the order in which the bodies ended. A body that was killed has no span."""
    open_bodies: dict[tuple[str, str, int], Mark] = {}
    done = []
    for mark in marks:
        where = (mark.body, mark.execution, mark.pid)
        if mark.mark == "begin":
            open_bodies[where] = mark
        elif mark.mark == "end" and where in open_bodies:
            begun = open_bodies.pop(where)
            done.append(Span(mark.body, mark.execution, mark.account, mark.pid, begun.at, mark.at))
    return done
