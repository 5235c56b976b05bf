"""`manage.py sweep_reactors`: what every Celery worker does by itself, once, from a shell or a cron job."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from reactor_coord.management.command import OperatorCommand, as_json
from reactor_coord.management.console import Console
from reactor_coord.workers.sweep import sweep_once


class Command(OperatorCommand):
    """See the module."""

    help = "Find dead leases, due executions and lapsed grants, and send their messages again. Workers do this by themselves."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--every", type=float, metavar="SECONDS", help="Again and again, until Ctrl-C.")
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        while True:
            report = sweep_once()
            if options["json"]:
                console.json(as_json(report))
            else:
                console.line(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in as_json(report).items()))
            if options["every"] is None:
                return
            time.sleep(max(options["every"], 0.5))
