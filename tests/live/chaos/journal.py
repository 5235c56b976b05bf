"""What happened at one point, in one file that outlives every process: effects, sides of bodies, and what the stage did.

A line is appended by one `write`, which a SIGKILL cannot take back: the kernel has it. (Only the death of the machine
could; nobody here waits for a disk.) Lines of several processes stay whole and in order.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reactor_coord.testing import effects

ENVIRONMENT = "RC_CHAOS_JOURNAL"
ROLE = "RC_CHAOS_ROLE"

BEGAN, ENDED = "began", "ended"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `what`: `effect`, `run`, `undo`, `comp` or `stage`."""

    at: float
    pid: int
    role: str
    what: str
    name: str
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def side(self) -> str:
        """Of a body or a cleanup: `began` or `ended`."""
        return str(self.notes.get("side", ""))

    @property
    def number(self) -> int:
        """Of an effect: its number."""
        return int(self.notes.get("number", 0))

    def __str__(self) -> str:
        notes = " ".join(f"{name}={value}" for name, value in self.notes.items() if name != "number")
        number = f"{self.number:>4}" if self.number else "    "
        return f"{self.at % 1000:8.3f} {self.role:<9} {number} {self.what:<7} {self.name} {notes}".rstrip()


def write(what: str, name: str, **notes: Any) -> None:
    """Append a line to the journal that the environment names."""
    entry = {"at": time.time(), "pid": os.getpid(), "role": os.environ.get(ROLE, ""), "what": what, "name": name}
    line = json.dumps({**entry, "notes": notes}, default=str).encode() + b"\n"
    handle = os.open(os.environ[ENVIRONMENT], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def note_side(what: str, name: str, side: str, **notes: Any) -> None:
    """Note that a body or a cleanup has come to this side; who dies here has come to it."""
    write(what, name, side=side, **notes)
    effects.reached("body", f"{what} {name} {side}")


def read(path: Path) -> list[Line]:
    """All lines so far, in order."""
    if not path.exists():
        return []
    return [Line(**json.loads(line)) for line in path.read_text().splitlines()]
