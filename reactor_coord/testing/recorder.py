"""The overlap recorder: which bodies ran, where, in which order and whether two ran at once, seen across processes.

Bodies append enter and leave, stamped with the *server's* clock, to one Redis list; one clock and one order for all
processes. A body in any process finds the list by itself (`current()`): the Redis of the project's cache alias, under the
test's key prefix. It knows nothing of executions beyond the labels and notes it is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import redis

T = TypeVar("T")

# KEYS[1] list of entries, no expiry but the test's own cleaning. ARGV[1] a JSON object, seconds are added as "at".
# Returns the server's microseconds. One round trip, so that the stamp and the place in the list agree.
_APPEND = """
local now = redis.call('TIME')
local entry = cjson.decode(ARGV[1])
entry['at'] = now[1] .. '.' .. string.format('%06d', now[2])
redis.call('RPUSH', KEYS[1], cjson.encode(entry))
return entry['at']
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list."""

    at: float  # Unix seconds, server's clock
    kind: str  # enter | leave | mark | gone
    label: str
    pid: int
    thread: int
    token: str
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interval:
    """One body: from entering to leaving. `left` is infinite while it runs; the kill's time where it was killed."""

    label: str
    entered: float
    left: float
    pid: int
    thread: int
    was_killed: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it runs still, as far as anybody was told."""
        return self.left == float("inf")

    def overlaps(self, other: Interval) -> bool:
        """Whether both ran at some instant."""
        return self.entered < other.left and other.entered < self.left


class Recorder:
    """One list in one Redis. Cheap to make; safe over threads and forks."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.patience = 10.0
        """Seconds for which it waits where a call says nothing else; more where the tests share their machine."""

    # ------------------------------------------------------------ in bodies

    @contextlib.contextmanager
    def recording(self, label: str, **notes: Any) -> Iterator[None]:
        """The block is a body: entered, and left whatever happens (but for a kill)."""
        token = self.enter(label, **notes)
        try:
            yield
        finally:
            self.leave(label, token)

    def enter(self, label: str, **notes: Any) -> str:
        """A body begins; the token goes to `leave`."""
        token = uuid.uuid4().hex
        self._append("enter", label, token, notes)
        return token

    def leave(self, label: str, token: str) -> None:
        """That body ended."""
        self._append("leave", label, token, {})

    def mark(self, label: str, **notes: Any) -> None:
        """Something that happened at an instant."""
        self._append("mark", label, uuid.uuid4().hex, notes)

    def gone(self, *pids: int) -> None:
        """These processes were killed: bodies they were in ended, at the latest, now."""
        for pid in pids:
            self._append("gone", "", "", {}, pid=pid)

    # ------------------------------------------------------------ in tests

    def entries(self) -> list[Entry]:
        """All of it, in the server's order."""
        raw = client(self.url).lrange(self.key, 0, -1)
        return [_entry(json.loads(line)) for line in raw]

    def sequence(self, *, notes: str | None = None) -> list[str]:
        """The labels of what began and of marks, in order: `["run a", "run b", "comp b", "undo a"]`.

        `notes`: append that note, as `label[value]`.
        """
        seen = [entry for entry in self.entries() if entry.kind in {"enter", "mark"}]
        return [f"{entry.label}[{entry.notes.get(notes)}]" if notes else entry.label for entry in seen]

    def count(self, label: str) -> int:
        """How often that body began, or that mark was set."""
        return self.sequence().count(label)

    def intervals(self, label: str | None = None) -> list[Interval]:
        """The bodies with that label (all: `None`), in the order in which they began."""
        return [interval for interval in _intervals(self.entries()) if label is None or interval.label == label]

    def overlaps(self, first: str, second: str | None = None) -> list[tuple[Interval, Interval]]:
        """The pairs of bodies that ran at once: among those of `first`, or between `first` and `second`."""
        intervals = self.intervals()
        left = [interval for interval in intervals if interval.label == first]
        if second is None or second == first:
            return [(a, b) for at, a in enumerate(left) for b in left[at + 1 :] if a.overlaps(b)]
        right = [interval for interval in intervals if interval.label == second]
        return [(a, b) for a in left for b in right if a.overlaps(b)]

    def max_concurrency(self, label: str) -> int:
        """The most bodies with that label at any instant."""
        intervals = self.intervals(label)
        return max((sum(a.entered <= b.entered < a.left for a in intervals) for b in intervals), default=0)

    def wait_for(
        self, label: str, count: int = 1, *, left: bool = False, timeout: float | None = None
    ) -> list[Interval]:
        """Wait until `count` bodies (or marks) with that label have begun, or with `left=True` ended; these."""
        return self.wait_until(lambda: self._having(label, count, left), f"{count} of {label!r}", timeout)

    def wait_until(self, found: Callable[[], T], what: str, timeout: float | None = None) -> T:
        """Poll until `found()` is truthy, and return it; on timeout (`patience`) fail showing what was recorded."""
        timeout = self.patience if timeout is None else timeout
        deadline = time.monotonic() + timeout
        while True:
            if result := found():
                return result
            if time.monotonic() > deadline:
                raise AssertionError(f"not recorded within {timeout} s: {what}; recorded: {self.sequence()}")
            time.sleep(0.01)

    def clear(self) -> None:
        """Forget all of it."""
        client(self.url).delete(self.key)

    def now(self) -> float:
        """The server's clock, to compare with `Entry.at`."""
        seconds, micros = client(self.url).time()
        return float(seconds + micros / 1e6)

    def _having(self, label: str, count: int, left: bool) -> list[Interval]:
        found = [body for body in self._all(label) if not (left and body.is_open)]
        return found if len(found) >= count else []

    def _all(self, label: str) -> list[Interval]:
        """Bodies, and marks as bodies that took no time."""
        marks = [entry for entry in self.entries() if entry.kind == "mark" and entry.label == label]
        return [*self.intervals(label), *(_at_once(entry) for entry in marks)]

    def _append(self, kind: str, label: str, token: str, notes: dict[str, Any], pid: int | None = None) -> None:
        who = {"pid": pid or os.getpid(), "thread": threading.get_ident()}
        line = json.dumps({"kind": kind, "label": label, "token": token, "notes": notes, **who}, default=str)
        client(self.url).eval(_APPEND, 1, self.key, line)


def current() -> Recorder:
    """The recorder of the running test, in whatever process this is.

    `REACTOR_COORD_RECORDER_URL` names another Redis than the project's, for tests that break that one.
    """
    from django.conf import settings

    options = settings.REACTOR_COORD
    alias = options.get("REDIS_ALIAS", "default")
    url = os.environ.get("REACTOR_COORD_RECORDER_URL") or str(settings.CACHES[alias]["LOCATION"])
    return Recorder(url, f"{options.get('KEY_PREFIX', 'rc')}:recorder")


def client(url: str) -> redis.Redis:
    """This process's client of that Redis."""
    return _client(url, os.getpid())


@lru_cache(maxsize=8)
def _client(url: str, pid: int) -> redis.Redis:
    """A client of its own per process: a connection inherited over a fork would mix two processes' answers."""
    del pid
    return redis.Redis.from_url(url, decode_responses=True)


def _entry(raw: dict[str, Any]) -> Entry:
    notes = raw["notes"] or {}  # an empty table comes back from Lua as a list
    return Entry(float(raw["at"]), raw["kind"], raw["label"], int(raw["pid"]), int(raw["thread"]), raw["token"], notes)


def _at_once(entry: Entry) -> Interval:
    return Interval(entry.label, entry.at, entry.at, entry.pid, entry.thread, False, entry.notes)


def _intervals(entries: list[Entry]) -> list[Interval]:
    left = {entry.token: entry.at for entry in entries if entry.kind == "leave"}
    gone = {entry.pid: entry.at for entry in entries if entry.kind == "gone"}
    found = []
    for entry in entries:
        if entry.kind != "enter":
            continue
        killed = gone.get(entry.pid) if entry.token not in left else None
        end = left.get(entry.token) or killed or float("inf")
        found.append(Interval(entry.label, entry.at, end, entry.pid, entry.thread, killed is not None, entry.notes))
    return found
