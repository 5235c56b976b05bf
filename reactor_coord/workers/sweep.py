"""The net under everything: it finds dead leases, due rows and lapsed grants, and sends their messages again.

It runs as a thread in every Celery worker's main process; one of them leads at a time, the others look on. Everything
it does is conditional, so a second leader by accident costs a query. With no crash and no loss it finds nothing to do.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from django.db import connections

from reactor_coord import conf, probes
from reactor_coord.coordination import leadership, locks, ordered_lines, semaphores
from reactor_coord.declare import registry
from reactor_coord.engine import delays
from reactor_coord.engine.states import Mode
from reactor_coord.errors import NO_ANSWER, ReactorCoordError
from reactor_coord.runtime.dispatch import send, wake
from reactor_coord.storage import clock, pauses, store
from reactor_coord.workers.forking import Unforked

logger = logging.getLogger("reactor_coord.sweep")

AT_ONCE = 100
"""Rows looked after in one transaction."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep found: leases of dead workers, in-process runs aborted, messages sent again, lines tended."""

    lost: int = 0
    aborted: int = 0
    sent: int = 0
    woken: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing had gone astray."""
        return not (self.lost or self.aborted or self.sent or self.woken)


def sweep_once() -> SweepReport:
    """Do one whole sweep, leader or not."""
    probes.reached("sweep.before")
    lost, aborted = _bury_the_dead()
    return SweepReport(lost, aborted, _send_what_is_due(), _tend_lines())


def _bury_the_dead() -> tuple[int, int]:
    lost = aborted = 0
    for dead in store.expired_leases():
        resumes = dead.mode == Mode.WORKER or _resumes_on_crash(dead.reactor)
        if not store.mark_lost(dead, resume_inline=resumes):
            continue
        lost += 1
        aborted += not resumes
        if resumes:
            send(str(dead.id), dead.queue)
    return lost, aborted


def _resumes_on_crash(reactor: str) -> bool:
    try:
        return registry.lookup(reactor).on_crash == "resume"
    except ReactorCoordError:
        return False


def _send_what_is_due() -> int:
    interval = conf.settings().SWEEP_INTERVAL
    sent = 0
    for identity, queue in pauses.end_overdue():
        sent += send(str(identity), queue)
    due = store.due(ahead=interval)
    for start in range(0, len(due), AT_ONCE):
        with store.atomic():  # one commit for many: on SQLite each would wait for every other writer
            mine = [
                row for row in due[start : start + AT_ONCE] if store.push_look(row, delays.RESENDS.after(row.looks + 1))
            ]
        for row in mine:
            wait = max(timedelta(0), row.resume_at - clock.present())
            sent += send(str(row.id), row.queue, wait.total_seconds())
    return sent


def _tend_lines() -> int:
    try:
        wakes = (*locks().tend(), *semaphores().tend(), *ordered_lines().tend())
    except NO_ANSWER as error:
        logger.warning("event=reactor_coord.sweep_without_redis error=%s", error)
        return 0
    wake(wakes)
    return len(wakes)


unforked = Unforked()


class SweepThread:
    """Sweeps every `SWEEP_INTERVAL` seconds while this worker leads."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="reactor-coord-sweep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Have it end after what it is doing, and let another lead."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(conf.settings().SWEEP_INTERVAL):
            with unforked:  # children are forked from this process: they inherit no open connection
                self._sweep()
        self._resign()

    def _sweep(self) -> None:
        try:
            if self._leads():
                probes.reached("sweep.leader")
                report = sweep_once()
                if not report.is_empty:
                    logger.info("event=reactor_coord.swept %s", report)
        except Exception:  # a sweep that fails is tried again: this thread must outlive a database restart
            logger.exception("event=reactor_coord.sweep_failed")
        finally:
            connections.close_all()

    def _leads(self) -> bool:
        """Whether this worker is the leader now. Without Redis everybody is: sweeping twice is only work."""
        try:
            return leadership().claim(self._name, 3 * conf.settings().SWEEP_INTERVAL)
        except NO_ANSWER as error:
            logger.warning("event=reactor_coord.sweep_without_leader error=%s", error)
            return True

    def _resign(self) -> None:
        try:
            leadership().resign(self._name)
        except NO_ANSWER as error:
            logger.debug("event=reactor_coord.sweep_resign_failed error=%s", error)


thread = SweepThread()
