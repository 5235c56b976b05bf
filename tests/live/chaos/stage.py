"""One point: the processes that play it, the rows they share, and what is left when it is over.

`play` starts a victim and waits for its death, starts a worker, and waits until every execution is over and Redis is
empty of holds. What came of it is a `Played`; whether that is right is for `invariants`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from reactor_coord.testing import recorder
from tests.live.chaos import actors, journal
from tests.live.chaos.variants import Part, Variant

T = TypeVar("T")

DEATH_SECONDS = 30.0
"""A victim that has not come to its effect by then will not."""

OVER_SECONDS = 20.0
"""An execution that a healthy worker has not ended by then hangs."""

FREE_SECONDS = 4.0
"""What a dead one holds when all is over has lapsed by then, and a sweep has looked."""

ROUNDS = 4
"""How often a point is played at most, where the machine was too slow for a process that was to be alive."""

VICTIM, SECOND = "victim", "second"
"""Roles of those that die."""

SECOND_DIES_WITHIN = 61
"""Effects of a worker that takes over, at one of which it dies, too."""

QUIET_SECONDS = 0.4
"""Without another effect a run is over that nobody kills."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one execution of a point stands at the end. `status` is empty when its row was never written."""

    part: Part
    status: str = ""
    failure: dict[str, Any] | None = None
    postings: int = 0


@dataclass(slots=True)
class Played:
    """What came of a point."""

    variant: Variant
    point: int | None
    lines: list[journal.Line]
    ended: list[Ended] = field(default_factory=list)
    """In the order of the variant's cast."""
    unfinished: list[str] = field(default_factory=list)
    """Executions that are not over, described."""
    held: list[str] = field(default_factory=list)
    was_slow: bool = False
    """Whether a process was late for its own lease while it lived: then this shows nothing of a death."""
    seconds: float = 0.0
    directory: Path = Path()

    @property
    def effects(self) -> list[journal.Line]:
        """The first victim's, in order."""
        return [line for line in self.lines if line.what == "effect" and line.role == VICTIM]

    @property
    def died_at(self) -> journal.Line | None:
        """The effect at which it died; None when it was left alone, or never came to it."""
        effects = self.effects
        return effects[-1] if effects and len(effects) == self.point else None

    @property
    def deaths(self) -> dict[str, journal.Line]:
        """Where each victim died, by role."""
        if self.died_at is None:
            return {}
        again = [line for line in self.lines if line.what == "effect" and line.role == SECOND]
        died_again = {SECOND: again[-1]} if len(again) == second_point(self.point or 0) else {}
        return {VICTIM: self.died_at, **died_again}


def second_point(point: int) -> int:
    """Where the worker dies that takes over from one that died at `point`: anywhere in its first effects."""
    return 1 + point * 37 % SECOND_DIES_WITHIN


class Stage:
    """Plays one point at a time, on the database and the Redis of this process's settings."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def play(self, variant: Variant, point: int | None) -> Played:
        """Play it from start to end; `point` None leaves the victim alone. Nothing of it is left but its directory."""
        for _ in range(ROUNDS - 1):
            played = self._play_once(variant, point)
            if not played.was_slow:
                return played
            forget(played)
        return self._play_once(variant, point)

    def _play_once(self, variant: Variant, point: int | None) -> Played:
        started = time.monotonic()
        prefix = f"chaos-{uuid.uuid4().hex[:8]}"
        directory = Path(tempfile.mkdtemp(prefix=f"rc-{prefix}-"))
        os.environ[journal.ENVIRONMENT] = str(directory / "journal")
        actors.lay_over({"KEY_PREFIX": prefix, "QUEUE": prefix})
        try:
            self._perform(variant, point, prefix, directory)
            played = _what_is_left(variant, point, prefix, directory)
        finally:
            self._end_all()
            _clear(prefix)
        played.seconds = time.monotonic() - started
        return played

    def _perform(self, variant: Variant, point: int | None, prefix: str, directory: Path) -> None:
        log = directory / "log"

        def start(role: str, act: Callable[[], None]) -> int:
            pid = actors.fork(role, act, log)
            self._pids.append(pid)
            return pid

        if variant.is_inline:
            start("worker", lambda: actors.worker(prefix))
        self._wait_for_death(start(VICTIM, lambda: actors.victim(variant, prefix, point)), prefix)
        execution = next(iter(_roots(prefix)), None)
        if execution is None:
            return
        if variant.then == "cancel":
            self._wait_for_exit(start("operator", lambda: actors.operator("cancel", execution.pk, prefix)))
        if variant.dies_again and point is not None:
            second = start(SECOND, lambda: actors.second_victim(prefix, second_point(point)))
            self._wait_for_death(second, prefix)
        if not variant.is_inline:
            start("worker", lambda: actors.worker(prefix))
        _wait(lambda: not _unfinished(prefix), OVER_SECONDS)
        journal.write("stage", "all is over" if not _unfinished(prefix) else "it is waited for no longer")
        if variant.then in {"undo", "resume"}:
            self._wait_for_exit(start("operator", lambda: actors.operator(variant.then, execution.pk, prefix)))
            _wait(lambda: not _unfinished(prefix), OVER_SECONDS)
            journal.write("stage", "all is over" if not _unfinished(prefix) else "it is waited for no longer")
        _wait(lambda: not held(prefix), FREE_SECONDS)
        journal.write("stage", "held still" if held(prefix) else "nothing is held")

    def _wait_for_death(self, victim: int, prefix: str) -> None:
        """Until it is dead, or has nothing left to do."""
        deadline = time.monotonic() + DEATH_SECONDS
        path = Path(os.environ[journal.ENVIRONMENT])
        size, since = -1, time.monotonic()
        while time.monotonic() < deadline and not self._has_exited(victim):
            now = path.stat().st_size if path.exists() else -1
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_SECONDS and _roots(prefix) and not _unfinished(prefix):
                break
            time.sleep(0.02)
        self._end(victim)
        journal.write("stage", "it is gone")

    def _wait_for_exit(self, pid: int) -> None:
        _wait(lambda: self._has_exited(pid), OVER_SECONDS)
        self._end(pid)

    def _has_exited(self, pid: int) -> bool:
        if pid in self._pids and os.waitpid(pid, os.WNOHANG) != (0, 0):
            self._pids.remove(pid)
        return pid not in self._pids

    def _end(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._pids.remove(pid)

    def _end_all(self) -> None:
        for pid in list(self._pids):
            self._end(pid)


def _wait(found: Callable[[], T], timeout: float) -> T:
    """Poll until it is truthy or the time is over; what it was last."""
    deadline = time.monotonic() + timeout
    while not (result := found()) and time.monotonic() < deadline:
        time.sleep(0.03)
    return result


def _roots(prefix: str) -> list[Any]:
    """The rows that the victim started."""
    from reactor_coord.models import Execution

    return list(Execution.objects.filter(queue=prefix, parent__isnull=True).order_by("pk"))


def _unfinished(prefix: str) -> list[str]:
    from reactor_coord.engine.states import TERMINAL
    from reactor_coord.models import Execution

    rows = Execution.objects.filter(queue=prefix).exclude(status__in=[str(each) for each in TERMINAL])
    return [f"{row.label} is {row.status}, waiting on {row.waiting_on}" for row in rows]


def _what_is_left(variant: Variant, point: int | None, prefix: str, directory: Path) -> Played:
    played = Played(variant, point, _readable(journal.read(directory / "journal"), prefix), directory=directory)
    roots = {row.tags["who"]: row for row in _roots(prefix)}
    played.ended = [_ended(part, roots.get(part.who)) for part in variant.cast]
    played.unfinished, played.held = _unfinished(prefix), held(prefix)
    played.was_slow = _was_slow(played, prefix)
    return played


def _ended(part: Part, row: Any) -> Ended:
    from tests.live.models import Posting

    if row is None:
        return Ended(part)
    return Ended(part, row.status, row.failure, Posting.objects.filter(execution=str(row.pk)).count())


def _was_slow(played: Played, prefix: str) -> bool:
    """A hold lost, or a worker missed while it lived: it has written to the journal since."""
    from reactor_coord.engine.states import EventKind
    from reactor_coord.models import TraceEvent

    events = TraceEvent.objects.filter(execution__queue=prefix)
    last = {line.pid: line.at for line in played.lines}
    missed = events.filter(kind=EventKind.WORKER_LOST)
    return events.filter(kind=EventKind.LOST).exists() or any(
        event.at.timestamp() < last.get(_pid(event.data.get("worker", "")), 0.0) for event in missed
    )


def _pid(worker: str) -> int:
    """The process of a worker as rows name it."""
    number = worker.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _readable(lines: list[journal.Line], prefix: str) -> list[journal.Line]:
    """The lines with the names of executions for their ids, and without what is of this point alone."""
    from reactor_coord.models import Execution

    names = {prefix + ":": ""}
    for row in Execution.objects.filter(queue=prefix):
        who = f"{row.tags['who']}/" if row.tags.get("who") else ""
        names[str(row.pk)] = f"{who}{row.label}" + ("" if row.element_index is None else f"[{row.element_index}]")

    def readable(text: str) -> str:
        for found, name in names.items():
            text = text.replace(found, name)
        return text

    return [replace(line, name=readable(line.name)) for line in lines]


def held(prefix: str) -> list[str]:
    """What is held, waited for or in turn in Redis under that prefix, whatever the product's own looks would say of it."""
    client = _redis()
    found = []
    for key in sorted(client.scan_iter(match=f"{prefix}:*", count=1000)):
        what = str(key).removeprefix(f"{prefix}:")
        look = _LOOKS.get((what.partition(":")[0].strip("{"), what.rpartition(":")[2]))
        if look is not None:
            found += [f"{what} {entry}" for entry in look(client, key)]
        elif what.startswith("waits:"):
            found.append(what)
    return found


def _entries(client: Any, key: str) -> list[str]:
    return [f"{name}={value}" for name, value in client.hgetall(key).items()]


def _itself(client: Any, key: str) -> list[str]:
    return [str(client.hgetall(key))] if client.type(key) == "hash" else [""]


def _positions(client: Any, key: str) -> list[str]:
    return [entry for entry in client.hvals(key) if '"state":"void"' not in entry]


_LOOKS: dict[tuple[str, str], Callable[[Any, str], list[str]]] = {
    ("lock", "hold"): _itself,
    ("lock", "line"): _itself,
    ("lock", "waiters"): _itself,
    ("semaphore", "hold"): _entries,
    ("semaphore", "line"): _itself,
    ("semaphore", "waiters"): _itself,
    ("rate_limit", "plans"): _entries,
    ("ordered_lock", "line"): _positions,
}
"""By primitive and part of a key: what of it is a hold, a wait, a slot planned or a turn."""


def _clear(prefix: str) -> None:
    """Nothing of this point meets the next."""
    from reactor_coord.models import Execution
    from tests.live.models import Posting

    Execution.objects.filter(queue=prefix).delete()
    Posting.objects.filter(account=prefix).delete()
    client = _redis()
    for key in client.scan_iter(match=f"{prefix}:*", count=1000):
        client.delete(key)


def _redis() -> Any:
    return recorder.client(recorder.current().url)


def forget(played: Played) -> None:
    """Remove its journal and log."""
    with contextlib.suppress(OSError):
        shutil.rmtree(played.directory)
