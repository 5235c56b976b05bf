"""`manage.py run_reactor NAME --input k=v`: run one here, or in a worker."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from reactor_coord import operations
from reactor_coord.declare import registry
from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.declare.entrance import RunOptions, entrance
from reactor_coord.engine.delays import handle_polls
from reactor_coord.engine.states import ExecutionStatus, is_terminal
from reactor_coord.management.command import OperatorCommand, as_json
from reactor_coord.management.console import Console
from reactor_coord.models import Execution
from reactor_coord.operations import views

STANDING = (ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION)
"""Not over, but nothing goes on until somebody does something."""


class Command(OperatorCommand):
    """See the module."""

    help = "Run a reactor in this process, or with --background in a worker. Exits non-zero when it failed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="The reactor: its dotted path, or its class name.")
        given = parser.add_mutually_exclusive_group()
        given.add_argument(
            "--input", action="append", default=[], metavar="NAME=VALUE", help="One input. May be repeated."
        )
        given.add_argument(
            "--inputs", metavar="OBJECT", help="All inputs as one JSON object; - reads it from standard input."
        )
        parser.add_argument("--background", action="store_true", help="In a worker: print the id and go.")
        parser.add_argument("--wait", action="store_true", help="With --background: wait until it ends.")
        parser.add_argument("--timeout", type=float, metavar="SECONDS", help="With --wait: no longer than this.")
        parser.add_argument("--idempotency-key", metavar="KEY", help="The same key returns the first execution.")
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        definition = registry.lookup(options["name"])
        inputs = self._inputs(definition, options)
        if options["background"]:
            row = self._start(definition, inputs, options)
        else:
            outcome = entrance().run(definition, inputs, RunOptions(idempotency_key=options["idempotency_key"]))
            row = outcome.execution
        self._tell(console, row, options)

    def _start(self, definition: ReactorDefinition, inputs: dict[str, Any], options: dict[str, Any]) -> Execution:
        handle = operations.start(definition.name, inputs, idempotency_key=options["idempotency_key"])
        row = Execution.objects.get(pk=handle.id)
        return self._wait(row, options["timeout"]) if options["wait"] else row

    def _wait(self, row: Execution, timeout: float | None) -> Execution:
        """Until it ends; a person at a terminal sees how it stands meanwhile."""
        begin, shown = time.monotonic(), ""
        polls, looks = handle_polls(0.2), 0
        while not is_terminal(row.status) and row.status not in STANDING:
            if timeout is not None and time.monotonic() - begin > timeout:
                raise CommandError(
                    f"{row.pk} is still {row.status} after {views.span(timeout)}; it goes on. "
                    f"`manage.py executions {row.pk}` shows how it stands; is a worker running?"
                )
            summary = views.summary(row)
            line = f"{summary.status_label} {views.span(time.monotonic() - begin)}"
            if self.stderr.isatty():
                self.stderr.write(f"\r\033[K{line}", ending="")
                shown = line
            looks += 1
            time.sleep(polls.after(looks))
            row = Execution.objects.get(pk=row.pk)
        if shown:
            self.stderr.write("\r\033[K", ending="")
        return row

    def _tell(self, console: Console, row: Execution, options: dict[str, Any]) -> None:
        detail = views.detail(row, trace_limit=0)
        if options["json"]:
            console.json(as_json(detail))
        else:
            console.line(f"{detail.summary.label}  {detail.summary.id}  {detail.summary.status_label}", style="bold")
            console.line(detail.explain)
            if detail.result is not None:
                console.line(f"result: {json.dumps(detail.result, ensure_ascii=False, default=str)}")
        good = (ExecutionStatus.COMPLETED, ExecutionStatus.HALTED)
        went_wrong = row.status == ExecutionStatus.NEEDS_DEFINITION or (
            is_terminal(row.status) and row.status not in good
        )
        if went_wrong:
            raise CommandError(f"{detail.summary.label} {detail.summary.id} is {detail.summary.status_label}.")

    def _inputs(self, definition: ReactorDefinition, options: dict[str, Any]) -> dict[str, Any]:
        if options["inputs"] is not None:
            return _from_json(sys.stdin.read() if options["inputs"] == "-" else options["inputs"])
        return _from_pairs(definition, options["input"])


def _from_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--inputs is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise CommandError(f"--inputs must be an object of inputs by name, not {type(found).__name__}.")
    return dict(found)


def _from_pairs(definition: ReactorDefinition, pairs: Sequence[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise CommandError(f"--input {pair!r} has no value. Write --input {name or 'name'}=value.")
        if name in inputs:
            raise CommandError(f"--input {name} is given twice.")
        inputs[name] = _value(definition, name, text)
    return inputs


def _value(definition: ReactorDefinition, name: str, text: str) -> Any:
    """The text as it stands where the input takes it (`9.50` stays exact), else the JSON it reads as, where that is taken."""
    field = definition.schema.fields.get(name)
    if field is None or _is_taken(field, text):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if _is_taken(field, value) else text


def _is_taken(field: Any, value: Any) -> bool:
    try:
        field.validated(value)
    except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
        return False
    return True
