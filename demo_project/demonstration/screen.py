"""Lines with the time since the start, and progress: a bar where a person watches a terminal, a line now and then elsewhere."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

LINES_PER_PROGRESS = 5


class Screen:
    """Where the demo writes. Times are seconds since it was made."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._begun = time.monotonic()
        self._is_live = out.isatty() and importlib.util.find_spec("rich") is not None

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def part(self, name: str, promise: str) -> None:
        """Open a part of the demo."""
        self._write(f"\n{self._strong(name)}  {promise}")

    def say(self, text: str) -> None:
        """One line."""
        self._write(f"  {self.elapsed:6.2f} s  {text}")

    def plain(self, text: str = "") -> None:
        """A line without a time."""
        self._write(text)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Give a function that takes how many are done."""
        if self._is_live:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("            {task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=Console(file=self._out), transient=True) as bar:
                task = bar.add_task(what, total=total)
                yield lambda done: bar.update(task, completed=done)
            return
        yield self._lines(what, total)

    def _lines(self, what: str, total: int) -> Callable[[int], None]:
        stride = max(1, total // LINES_PER_PROGRESS)
        said = 0

        def tell(done: int) -> None:
            nonlocal said
            if done - said >= stride or (done == total and said < total):
                said = done
                self.say(f"{what}: {done} of {total}")

        return tell

    def _strong(self, text: str) -> str:
        return f"\033[1m{text}\033[0m" if self._out.isatty() else text

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()
