"""The processes that play a point, each a fork of the lane, which has imported everything and opened nothing that is used.

`victim` starts the execution and then works as a worker, or runs it in process, and kills itself at its effect. `worker`
is a healthy one. `operator` calls one verb. All leave by `os._exit` or SIGKILL: nothing of the lane is run twice.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.chaos import journal
from tests.live.chaos.variants import LEASES, Variant

SWEEP_INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon a process is missed: its lease on the execution, and its leases in Redis."""

    lease_ttl: float
    redis_ttl: float


HEALTHY = Pace(20, 5)
"""However slow the machine, it is not taken for dead."""

DYING = Pace(0.6, 0.6)
"""Nobody sweeps beside a worker that will die, so its own lease costs it nothing while it lives."""

DYING_BESIDE_A_SWEEP = Pace(1.2, 0.6)
"""Beside an in-process run a worker does what it hands off, and sweeps."""

SETTINGS = {
    "SNOOZE_BASE_DELAY": 0.2,
    "SNOOZE_MAX_DELAY": 0.4,
    "SNOOZE_JITTER": 0,
    "SWEEP_INTERVAL": SWEEP_INTERVAL,
    "HANDOFF_GRACE": 1,
}


def _live_by(pace: Pace, prefix: str) -> None:
    """Before the reactor is imported, which reads how long its leases last."""
    os.environ[LEASES] = str(pace.redis_ttl)
    lay_over({**SETTINGS, "LEASE_TTL": pace.lease_ttl, "KEY_PREFIX": prefix, "QUEUE": prefix})


def lay_over(settings: dict[str, Any]) -> None:
    """Have these be `REACTOR_COORD`'s in this process, over what it has."""
    from django.conf import settings as project
    from django.core.signals import setting_changed

    value = {**project.REACTOR_COORD, **settings}
    project.REACTOR_COORD = value
    setting_changed.send(sender=lay_over, setting="REACTOR_COORD", value=value, enter=True)


def fork(role: str, act: Callable[[], None], log: Path) -> int:
    """Run `act` in a child of this process, which ends with it; its pid. What it prints goes to `log`."""
    from django.db import connections

    connections.close_all()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ[journal.ROLE] = role
        _redirect(log)
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def victim(variant: Variant, prefix: str, point: int | None) -> None:
    """Start the executions and run them; die at effect number `point`, if that is given and is reached."""
    _live_by(DYING_BESIDE_A_SWEEP if variant.is_inline else DYING, prefix)
    from tests.live.chaos import everything

    _number_effects(point)
    for part in variant.cast:
        prepared = getattr(everything, part.reactor).options(queue=prefix, tags={"who": part.who})
        start = prepared.run if variant.is_inline else prepared.enqueue
        start(who=part.who, key=prefix, card=part.who or "card", ending=variant.ending)
    if not variant.is_inline:
        _work(prefix, sweeps=False)


def second_victim(prefix: str, point: int) -> None:
    """Take over as a worker that sweeps, and die at effect number `point` of its own."""
    _live_by(DYING_BESIDE_A_SWEEP, prefix)
    _number_effects(point)
    _work(prefix, sweeps=True)


def _number_effects(point: int | None) -> None:
    from reactor_coord.testing import effects

    last = 0

    def tell(kind: str, name: str) -> None:
        nonlocal last
        last += 1
        journal.write("effect", name, kind=kind, number=last)
        if last == point:
            os.kill(os.getpid(), signal.SIGKILL)

    effects.watch(tell)


def worker(prefix: str) -> None:
    """A healthy worker, which also sweeps."""
    _live_by(HEALTHY, prefix)
    _work(prefix, sweeps=True)


def operator(verb: str, execution: Any, prefix: str) -> None:
    """Ask for it."""
    _live_by(HEALTHY, prefix)
    from reactor_coord.errors import ExecutionConflict
    from reactor_coord.models import Execution

    row = Execution.objects.get(pk=execution)
    try:
        getattr(row, verb)()
        journal.write("stage", f"the operator's {verb} was accepted")
    except ExecutionConflict as error:
        journal.write("stage", f"the operator's {verb} was refused", error=str(error))


def _work(prefix: str, *, sweeps: bool) -> None:
    from celery import signals

    from tests.celery_app import app

    if not sweeps:
        signals.worker_ready.disconnect(dispatch_uid="reactor_coord.sweep.start")
    app.Worker(
        pool_cls="solo",
        concurrency=1,
        hostname=f"{os.environ[journal.ROLE]}-{os.getpid()}@chaos",
        queues=[prefix],
        loglevel="INFO",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    ).start()
