"""`manage.py execution ID retry|resume|undo|close|cancel`."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from reactor_coord import operations
from reactor_coord.management.command import OperatorCommand, as_json, find_execution
from reactor_coord.management.console import Console
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "Act on one execution: retry, resume, undo or cancel it, or close its incomplete rollback."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="Its id, or the end of it.")
        parser.add_argument("verb", choices=("retry", "resume", "undo", "close", "cancel"))
        parser.add_argument("--from-step", help="retry: from this step on.")
        parser.add_argument("--payload", help="resume: the answer, as JSON.")
        parser.add_argument("--step", help="resume: which question, where several are open.")
        parser.add_argument("--no-rollback", action="store_true", help="cancel: undo nothing, what it did stands.")
        parser.add_argument("--reason", default="", help="Why, for the trace; close needs one.")
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        row = find_execution(options["id"])
        verb = options["verb"]
        done = getattr(operations, verb)(
            row, reason=options["reason"], actor="manage.py execution", **_details(verb, options)
        )
        started = getattr(done, "id", None)  # a retry is a new execution
        summary = views.summary(views.listing_one(started or row.pk))
        if options["json"]:
            console.json(as_json(summary))
        else:
            words = "started anew as" if started else "accepted:"
            undone = " Nothing of what it did is undone." if options["no_rollback"] else ""
            console.line(f"{verb} {words} {summary.label} {summary.id}, {summary.status_label} now.{undone}")


def _details(verb: str, options: dict[str, Any]) -> dict[str, Any]:
    if options["no_rollback"] and verb != "cancel":
        raise CommandError(f"--no-rollback belongs to cancel, not to {verb}.")
    if verb == "cancel":
        return {"rollback": not options["no_rollback"]}
    if verb == "retry":
        return {"from_step": options["from_step"]}
    if verb != "resume":
        return {}
    try:
        payload = None if options["payload"] is None else json.loads(options["payload"])
    except ValueError as error:
        raise CommandError(f"--payload is not JSON: {error}") from error
    return {"payload": payload, "step": options["step"]}
