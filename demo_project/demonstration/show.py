"""The parts in their order, what they need around them, and the verdict."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Sequence

from django.core.management import call_command

from demo_project import place
from demo_project.demonstration import (
    compensated,
    contended,
    guarded,
    in_order,
    limited,
    once_a_day,
    reconciled,
    sabotage,
    serialized,
    services,
    slotted,
)
from demo_project.demonstration.claims import ClaimBroken
from demo_project.demonstration.screen import Screen
from demo_project.demonstration.stage import Stage
from demo_project.payments.payment_file import PaymentRow

PARTS = (
    "serialized", "contended", "compensated", "reconciled", "limited", "slotted", "once-a-day", "in-order", "guarded",
)  # fmt: skip


def play(screen: Screen, rows: Sequence[PaymentRow], *, workers: int, parts: Collection[str] = PARTS) -> bool:
    """All the parts asked for; whether every claim was so. The database must be migrated."""
    sabotage.check()
    os.environ["DEMO_JOURNAL"] = str(place.journal())
    os.environ["DEMO_COURIER"] = str(place.courier_book())
    with services.worker(workers) as worker:
        stage = Stage(screen, place.journal(), worker, label=uuid.uuid4().hex[:6])
        good = [_part(stage, name, part) for name, part in _parts(stage, rows).items() if name in parts]
    _farewell(stage, all(good))
    return all(good)


def migrate() -> None:
    """Tables as the code wants them."""
    call_command("migrate", verbosity=0, interactive=False)


def _parts(stage: Stage, rows: Sequence[PaymentRow]) -> dict[str, tuple[str, Callable[[], None], bool]]:
    """Per part its promise, what it does, whether it needs the worker."""
    return {
        "serialized": (serialized.PROMISE, lambda: serialized.show(stage), False),
        "contended": (contended.PROMISE, lambda: contended.show(stage), True),
        "compensated": (compensated.PROMISE, lambda: compensated.show(stage), True),
        "reconciled": (reconciled.promise(rows), lambda: reconciled.show(stage, rows), True),
        "limited": (limited.PROMISE, lambda: limited.show(stage), True),
        "slotted": (slotted.PROMISE, lambda: slotted.show(stage), True),
        "once-a-day": (once_a_day.PROMISE, lambda: once_a_day.show(stage), True),
        "in-order": (in_order.PROMISE, lambda: in_order.show(stage), True),
        "guarded": (guarded.PROMISE, lambda: guarded.show(stage), True),
    }


def _part(stage: Stage, name: str, part: tuple[str, Callable[[], None], bool]) -> bool:
    promise, show, needs_worker = part
    stage.screen.part(name, promise)
    try:
        if needs_worker:
            stage.worker.wait_until_ready()
        show()
    except ClaimBroken as broken:
        stage.screen.say(f"NOT SO: {broken}")
        return False
    return True


def _farewell(stage: Stage, good: bool) -> None:
    screen = stage.screen
    screen.plain()
    screen.plain(
        f"{'Everything was as claimed' if good else 'NOT everything was as claimed'} ({screen.elapsed:.1f} s)."
    )
    if not good:
        screen.plain(f"What the worker wrote is in {place.worker_log()}")
    if stage.browse:
        screen.plain("The same executions in the admin: make serve. One of them here, with its trace:")
        for why, execution in stage.browse:
            screen.plain(f"  .venv/bin/python manage.py executions {execution}   # {why}")
