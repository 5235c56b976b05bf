"""A process that plays points one after the other: orders come as JSON lines on its input, answers go to its output.

It has imported everything, so that each process of a point is a fork that is ready at once; and it has the database for
itself, as a sweep looks after every row there is. `lanes` starts it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

SPECIFICATION = "RC_CHAOS_LANE"

USED_BY_WORKERS = (
    "celery.app.amqp",
    "celery.apps.worker",
    "celery.concurrency.solo",
    "celery.events",
    "django_redis.serializers.pickle",
    "kombu.transport.redis",
)
"""What a worker imports when it starts, imported once for all of them. The reactor itself is each one's own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a point outside: `effects` (kind and name of each) where the victim was left alone."""

    variant: str
    point: int | None
    died_at: str
    kind: str
    status: str
    violations: list[list[str]]
    """Pairs of rule and sentence."""
    seconds: float
    effects: list[list[str]] = field(default_factory=list)
    directory: str = ""
    """Where journal and log are; empty when nothing was wrong with it."""
    journal: list[str] = field(default_factory=list)


def main() -> None:
    """Serve orders until the input ends."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything here prints is no answer
    _set_up(json.loads(os.environ[SPECIFICATION]))
    from tests.live.chaos.stage import Stage

    stage = Stage()
    output.write("ready\n")
    output.flush()
    for line in sys.stdin:
        order = json.loads(line)
        output.write(json.dumps(asdict(_play(stage, order))) + "\n")
        output.flush()


def _set_up(specification: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    for alias, name in specification["databases"].items():
        settings.DATABASES[alias]["NAME"] = name
    django.setup()
    if specification["migrates"]:
        from django.core.management import call_command

        call_command("migrate", verbosity=0, run_syncdb=True)
    from tests.celery_app import app

    app.finalize()
    app.loader.import_default_modules()
    for module in USED_BY_WORKERS:
        importlib.import_module(module)
    gc.freeze()  # the forks share what is there, and look through none of it


def _play(stage: Any, order: dict[str, Any]) -> Answer:
    from tests.live.chaos.invariants import violations
    from tests.live.chaos.stage import forget
    from tests.live.chaos.variants import VARIANTS

    played = stage.play(VARIANTS[order["variant"]], order["point"])
    found = [[each.rule, each.what] for each in violations(played)]
    died_at = played.died_at
    if not found and not order["keep"]:
        forget(played)
    is_clean_run = played.point is None
    return Answer(
        variant=played.variant.name,
        point=played.point,
        died_at=died_at.name if died_at else "",
        kind=str(died_at.notes["kind"]) if died_at else "",
        status=" ".join(ended.status or "-" for ended in played.ended),
        violations=found,
        seconds=round(played.seconds, 2),
        effects=[[str(line.notes["kind"]), line.name] for line in played.effects] if is_clean_run else [],
        directory=str(played.directory) if found or order["keep"] else "",
        journal=[str(line) for line in played.lines] if found or order["keep"] else [],
    )


if __name__ == "__main__":
    main()
