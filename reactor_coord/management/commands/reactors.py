"""`manage.py reactors`: every reactor there is, its graph, and what each step coordinates."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from reactor_coord.declare import registry
from reactor_coord.management import drawing
from reactor_coord.management.command import OperatorCommand, as_json
from reactor_coord.management.console import Console
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "List the reactors of this project, with their steps and what each step coordinates."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="Only this one: its dotted path, or its class name.")
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        if options["name"]:
            found: tuple[views.ReactorOutline, ...] = (views.outline(registry.lookup(options["name"])),)
        else:
            found = views.reactors()
        if options["json"]:
            console.json(as_json(found))
            return
        if not found:
            console.line("No reactor is registered. Write one in the `reactors` module of an installed app.")
        for reactor in found:
            _show(console, reactor)


def _show(console: Console, reactor: views.ReactorOutline) -> None:
    for number, line in enumerate(drawing.text(reactor).rstrip().splitlines()):
        console.line(line, style="" if number else "bold")
    if reactor.doc:
        console.line(f"  {reactor.doc.splitlines()[0]}", style="dim")
    if reactor.inputs:
        console.line(f"  inputs: {', '.join(f'{name} ({kind})' for name, kind in reactor.inputs)}", style="dim")
    console.line()
