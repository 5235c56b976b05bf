"""`manage.py prune_executions`: delete what ended long ago, in batches, with its steps and its trace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from reactor_coord import conf
from reactor_coord.engine.states import TERMINAL
from reactor_coord.management.command import OperatorCommand
from reactor_coord.management.console import Console
from reactor_coord.models import Execution
from reactor_coord.storage import store


class Command(OperatorCommand):
    """See the module."""

    help = "Delete executions that ended more than RETENTION_DAYS ago, in batches. What is not over is never touched."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=float, help="Instead of REACTOR_COORD['RETENTION_DAYS'].")
        parser.add_argument("--batch", type=int, default=500, help="Executions deleted in one transaction.")
        parser.add_argument("--dry-run", action="store_true", help="Only say how many.")
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        days = conf.settings().RETENTION_DAYS if options["days"] is None else options["days"]
        if days is None:
            raise CommandError(
                "REACTOR_COORD['RETENTION_DAYS'] is None: everything is kept. Say --days to delete all the same."
            )
        if days < 0 or options["batch"] < 1:
            raise CommandError("--days must not be negative, and --batch at least 1.")
        before = timezone.now() - timedelta(days=days)
        if options["dry_run"]:
            over = Execution.objects.filter(parent__isnull=True, status__in=[str(each) for each in TERMINAL])
            self._tell(console, over.filter(finished_at__lt=before).count(), days, options)
            return
        deleted = 0
        while found := store.prune(before, options["batch"]):
            deleted += found
            if self.stderr.isatty():
                self.stderr.write(f"\r\033[K{deleted} deleted", ending="")
            if found < options["batch"]:
                break
        if self.stderr.isatty() and deleted:
            self.stderr.write("\r\033[K", ending="")
        self._tell(console, deleted, days, options)

    def _tell(self, console: Console, count: int, days: float, options: dict[str, Any]) -> None:
        if options["json"]:
            console.json({"executions": count, "days": days, "deleted": not options["dry_run"]})
        else:
            verb = "would be deleted" if options["dry_run"] else "deleted"
            console.line(f"{count} executions that ended more than {days:g} days ago {verb}.")
