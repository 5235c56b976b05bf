"""One daemon thread per process that keeps holds alive, and finishes in the background what Redis refused to finish.

It starts with the first thing to do and ends when nothing has been left for a while. It renews each lease every third of its
`ttl`; a key is lost when the server says so, or when its lease has run out by our own clock without a successful
renewal, and then stays lost whatever a later reply says. A child of a fork starts with nothing: its parent's holds are
its parent's to renew.

Forgetting waits for nobody: a renewal already on its way finds the token gone, or the hold parked, and changes nothing.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from reactor_coord.coordination import wakes
from reactor_coord.coordination.types import Taken
from reactor_coord.engine.delays import RENEWALS
from reactor_coord.errors import CoordinationDamaged, CoordinationUnavailable

logger = logging.getLogger("reactor_coord.coordination")

OnLost = Callable[[str], None]
Renew = Callable[[Taken, float, bool], "dict[str, float]"]
"""(taken, seconds to wait for the reply, prolong or only look) -> seconds left of each key, negative when lost."""

LINGER = 10.0
"""Seconds the thread waits for more when it has nothing left to do."""

PATIENCE = 2.0
"""Seconds a renewal waits for its reply at most: other leases wait behind it."""

HAIR = 0.02
"""Seconds past the end of a lease at which a hold that is not renewed is looked at."""


@dataclass(slots=True, eq=False)
class _Watched:
    taken: Taken
    on_lost: OnLost
    prolong: bool
    lease_until: float
    failures: int = 0
    lost: set[str] = field(default_factory=set)
    forgotten: bool = False


@dataclass(slots=True, eq=False)
class _Errand:
    """Something to be tried until it succeeds or is of no use any more; it answers whom to wake."""

    perform: Callable[[], Iterable[str]]
    until: float
    failures: int = 0
    forgotten: bool = False


_Entry = _Watched | _Errand


class Keeper:
    """Renews what it watches. Thread-safe; fork-safe.

    `renewers` says by primitive how a lease is prolonged, so that one thread keeps all kinds of holds.
    """

    def __init__(self) -> None:
        self.renewers: dict[str, Renew] = {}
        self._begin()
        _keepers.add(self)

    def watch(self, taken: Taken, on_lost: OnLost, *, prolong: bool = True) -> None:
        """Renew `taken` until it is forgotten; `on_lost(key)` is called once for each lost key, from the keeper's thread.

        `prolong=False` renews nothing: it only tells when the lease has run out.
        """
        lease_until = (taken.asked_at or time.monotonic()) + taken.ttl
        entry = _Watched(taken, on_lost, prolong, lease_until)
        due = lease_until - taken.ttl * 2 / 3 if prolong else lease_until + HAIR
        with self._changed:
            self._watched[taken.token] = entry
            self._put(entry, due)

    def forget(self, taken: Taken) -> None:
        """No more renewals of `taken`, nor news of it."""
        with self._changed:
            entry = self._watched.pop(taken.token, None)
            if entry is not None:
                entry.forgotten = True
                self._dropped += 1

    def lapsed(self, taken: Taken) -> frozenset[str]:
        """Which keys are lost by what was last heard of them: where Redis cannot be asked, a lease that ran out is over."""
        entry = self._watched.get(taken.token)
        if entry is None or time.monotonic() >= entry.lease_until:
            return frozenset(taken.names)
        return frozenset(entry.lost)

    def later(self, perform: Callable[[], Iterable[str]], until: float) -> None:
        """Try `perform` in the background until it does not raise `CoordinationUnavailable`, or until that monotonic time.

        The wakes it returns are delivered through `set_waker`.
        """
        with self._changed:
            self._put(_Errand(perform, until), time.monotonic())

    @property
    def watching(self) -> int:
        """How many acquisitions are kept alive."""
        return len(self._watched)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._watched: dict[str, _Watched] = {}
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._awake_at = 0.0  # when the thread looks next, so that a later due time need not wake it
        self._down_until = 0.0  # after a failure the others need not run into the same one by one

    def _put(self, entry: _Entry, due: float) -> None:
        if self._dropped > 64 and self._dropped * 2 > len(self._heap):
            self._heap = [each for each in self._heap if not each[2].forgotten]
            heapq.heapify(self._heap)
            self._dropped = 0
        heapq.heappush(self._heap, (due, next(self._numbers), entry))
        if self._thread is None:
            self._start()
        elif due < self._awake_at:
            self._changed.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="reactor-coord-keeper", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down: leases end by themselves
            logger.warning("event=reactor_coord.keeper_not_started")
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                entry = self._next()
                if entry is None:
                    self._thread = None
                    return
            due = self._serve(entry)
            with self._changed:
                if due is not None and not entry.forgotten:
                    heapq.heappush(self._heap, (due, next(self._numbers), entry))

    def _next(self) -> _Entry | None:
        """The next entry that is due, waiting for it; `None` when there has been none for a while."""
        idle_since = time.monotonic()
        while True:
            while self._heap and self._heap[0][2].forgotten:
                heapq.heappop(self._heap)
                self._dropped -= 1
            now = time.monotonic()
            if self._heap:
                due = idle_since = self._heap[0][0]
                if due <= now:
                    self._awake_at = 0.0
                    return heapq.heappop(self._heap)[2]
            else:
                due = idle_since + LINGER
                if due <= now:
                    return None
            self._awake_at = due
            self._changed.wait(due - now)

    def _serve(self, entry: _Entry) -> float | None:
        """One renewal or errand; answers when to come back."""
        try:
            return self._renew(entry) if isinstance(entry, _Watched) else self._run_errand(entry)
        except Exception:
            logger.exception("event=reactor_coord.keeper_failed")
            due = time.monotonic() + RENEWALS.longest
            return None if isinstance(entry, _Errand) and due >= entry.until else due

    def _run_errand(self, errand: _Errand) -> float | None:
        if time.monotonic() < self._down_until:
            return self._down_until
        try:
            wakes.deliver(errand.perform())
        except CoordinationUnavailable:
            errand.failures += 1
            due = self._down_until = time.monotonic() + RENEWALS.after(errand.failures)
            return due if due < errand.until else None
        except CoordinationDamaged as error:  # it will not get better by asking again
            logger.warning("event=reactor_coord.keeper_gave_up error=%s", error)
        return None

    def _renew(self, entry: _Watched) -> float | None:
        if entry.forgotten:
            return None
        asked_at, ttl = time.monotonic(), entry.taken.ttl
        if asked_at < self._down_until:
            return self._failed(entry)
        patience = min(max(entry.lease_until - asked_at, 0.05), PATIENCE)
        try:
            left = self.renewers[entry.taken.primitive](entry.taken, patience, entry.prolong)
        except CoordinationUnavailable:
            self._down_until = time.monotonic() + RENEWALS.after(entry.failures + 1)
            return self._failed(entry)
        except CoordinationDamaged as error:
            logger.warning("event=reactor_coord.not_renewed key=%s error=%s", entry.taken.names[0], error)
            return self._failed(entry)
        for key, seconds in left.items():
            if seconds < 0:
                self._lose(entry, key)
        alive = [seconds for key, seconds in left.items() if seconds >= 0]
        if not alive:
            return None
        entry.failures, entry.lease_until = 0, asked_at + min(alive)
        return asked_at + ttl / 3 if entry.prolong else entry.lease_until + HAIR

    def _failed(self, entry: _Watched) -> float:
        now = time.monotonic()
        if now >= entry.lease_until:
            for key in entry.taken.names:
                self._lose(entry, key)
            return now + RENEWALS.longest  # the hold may still stand: keep it for a body that goes on all the same
        entry.failures += 1
        return min(now + RENEWALS.after(entry.failures), entry.lease_until)

    def _lose(self, entry: _Watched, key: str) -> None:
        if key in entry.lost or entry.forgotten:
            return
        entry.lost.add(key)
        try:
            entry.on_lost(key)
        except Exception:
            logger.exception("event=reactor_coord.on_lost_failed key=%s", key)


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper._begin()


os.register_at_fork(after_in_child=_after_fork)
