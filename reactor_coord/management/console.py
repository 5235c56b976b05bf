"""Printing for people: tables and lines, with rich where it is installed, plain where not.

Whatever comes from a row is printed as text: no markup of rich's, no control character of a terminal's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

try:
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    HAS_RICH = True
except ImportError:  # an extra: everything is printed all the same
    HAS_RICH = False

_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a cursor, begins a line, or turns the direction of what follows."""

_STYLES = {
    "completed": "green",
    "succeeded": "green",
    "step_succeeded": "green",
    "running": "blue",
    "held": "blue",
    "acquired": "blue",
    "adopted": "blue",
    "granted": "cyan",
    "woken": "cyan",
    "released": "dim",
    "parked": "magenta",
    "paused": "magenta",
    "waiting": "magenta",
    "refused": "magenta",
    "retrying": "magenta",
    "rolling_back": "yellow",
    "compensated": "yellow",
    "undone": "yellow",
    "reverted": "yellow",
    "failed": "red",
    "step_failed": "red",
    "aborted": "red",
    "needs_definition": "yellow",
    "undo_failed": "red",
    "lock_lost": "red",
    "worker_lost": "red",
}


def printable(value: Any) -> str:
    """A value as text that moves no cursor and changes no colour."""
    text = "" if value is None else str(value)
    return _CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


class Console:
    """Where a command writes. `file` is the command's own stdout, so that tests and `call_command` can catch it."""

    def __init__(self, file: TextIO, *, colour: bool | None = None) -> None:
        self._file = file
        self._rich = None
        if HAS_RICH:
            terminal = bool(getattr(file, "isatty", lambda: False)()) if colour is None else colour
            width = None if terminal else 10_000
            self._rich = rich.console.Console(
                file=file,
                width=width,
                highlight=False,
                markup=False,
                emoji=False,
                no_color=not terminal,
                force_terminal=terminal,
            )

    def line(self, text: str = "", *, style: str = "") -> None:
        """One line; long ones are left for the terminal to wrap."""
        if self._rich is not None:
            self._rich.print(rich.text.Text(printable(text), style=style), soft_wrap=True)
        else:
            self._file.write(printable(text) + "\n")

    def heading(self, text: str) -> None:
        """A line that begins a part."""
        self.line()
        self.line(text, style="bold")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing") -> None:
        """Rows under headings; words that are states are coloured."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if not cells:
            self.line(empty, style="dim")
            return
        if self._rich is None:
            self._plain(columns, cells)
            return
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(rich.text.Text(cell, style=_STYLES.get(cell.split(" ")[0], "")) for cell in row))
        self._rich.print(table)

    def json(self, value: Any) -> None:
        """One JSON document, as a program reads it."""
        self._file.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")

    def clear(self) -> None:
        """An empty screen, where there is one."""
        if self._rich is not None and self._rich.is_terminal:
            self._rich.clear()

    def _plain(self, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        widths = [max(len(column), *(len(row[index]) for row in cells)) for index, column in enumerate(columns)]
        for row in ([*columns], ["-" * width for width in widths], *cells):
            text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            self._file.write(text + "\n")


def terminal_width() -> int:
    """Columns of the terminal, 100 where there is none."""
    return shutil.get_terminal_size((100, 40)).columns
