"""The lease of a running tree, kept alive by time and not by step.

One daemon thread a process renews every lease of that process in the database, so that a long body is not taken for a
dead worker. It is another thread than the one that keeps holds in Redis: a database that blocks must not cost a lock.
It starts with the first lease and again in a forked child.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connections

from reactor_coord import conf
from reactor_coord.engine.delays import lease_retry
from reactor_coord.errors import LeaseLost
from reactor_coord.storage import store

logger = logging.getLogger("reactor_coord")


@dataclass(eq=False)
class Lease:
    """The right to run one tree. `valid_until` is by this process's monotonic clock, so a frozen process notices."""

    root_id: UUID
    token: str
    ttl: float
    valid_until: float = 0.0
    is_lost: bool = False
    next_renewal: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.extend(time.monotonic())

    def extend(self, now: float) -> None:
        """Count the ttl from `now`, the moment before the database was asked."""
        self.valid_until = now + self.ttl
        self.next_renewal = now + self.ttl / 3

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease stands; asks the database when it may have run out."""
        if not self.is_lost and time.monotonic() >= self.valid_until:
            self.renew()
        if self.is_lost:
            raise LeaseLost(f"the lease on execution {self.root_id} is gone: another worker has taken it up")

    def renew(self) -> None:
        """Extend it in the database, or learn that it is lost. A row nobody else can see yet says nothing."""
        now = time.monotonic()
        answer = store.renew(self.root_id, self.token, self.ttl)
        if answer is False:
            self.is_lost = True
        else:
            self.extend(now)


class LeaseKeeper:
    """Renews the leases of this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._thread: threading.Thread | None = None
        self._sleeps_until = float("inf")

    def watch(self, lease: Lease) -> None:
        """Keep `lease` alive until it is forgotten."""
        with self._changed:
            self._leases.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="reactor-coord-leases", daemon=True)
                self._thread.start()
            elif self._sleeps_until > lease.next_renewal:
                self._changed.notify()

    def forget(self, lease: Lease) -> None:
        """Leave it alone from now on."""
        with self._changed:
            self._leases.discard(lease)

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._wait_for_due()
            for lease in due:
                self._renew(lease)
            connections.close_all()

    def _wait_for_due(self) -> list[Lease]:
        while True:
            now = time.monotonic()
            due = [lease for lease in self._leases if lease.next_renewal <= now and not lease.is_lost]
            if due:
                return due
            pending = [lease.next_renewal for lease in self._leases if not lease.is_lost]
            self._sleeps_until = min(pending, default=float("inf"))
            self._changed.wait(self._sleeps_until - now if pending else None)

    def _renew(self, lease: Lease) -> None:
        try:
            lease.renew()
        except Exception as error:  # noqa: BLE001 - the thread serves every lease of the process: one that fails is tried again
            lease.next_renewal = time.monotonic() + lease_retry(lease.ttl)
            logger.warning("event=reactor_coord.lease_renewal_failed execution=%s error=%s", lease.root_id, error)


keeper = LeaseKeeper()
os.register_at_fork(after_in_child=keeper._reset)


def lease_ttl() -> float:
    """The declared `LEASE_TTL`, seconds."""
    return float(conf.settings().LEASE_TTL)
