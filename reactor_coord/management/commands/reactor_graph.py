"""`manage.py reactor_graph NAME --format mermaid|dot|text`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from reactor_coord.declare import registry
from reactor_coord.management import drawing
from reactor_coord.management.command import OperatorCommand
from reactor_coord.management.console import Console
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "Draw the graph of one reactor, as Mermaid, Graphviz or plain text."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="The reactor: its dotted path, or its class name.")
        parser.add_argument("--format", choices=sorted(drawing.FORMATS), default="text")

    def perform(self, console: Console, **options: Any) -> None:
        graph = drawing.FORMATS[options["format"]](views.outline(registry.lookup(options["name"])))
        self.stdout.write(graph, ending="")
