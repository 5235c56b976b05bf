"""A process whose clock is wrong, by as many seconds as a file says at any moment. For live workers (B063).

`RC_TEST_CLOCK` names the file; who finds it shifts `time.time`, and with it `datetime.now` and what Django and Celery
make of that. What counts no time of day (`monotonic`, a sleep) goes on as it does, as on a machine whose clock is set.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import struct
import time
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

ENVIRONMENT = "RC_TEST_CLOCK"
FORMAT = "d"


class Clock:
    """The test's end of it: `Clock(path, 90)`, given to a worker as `env=clock.env`, and `set` while that runs."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path = path
        path.write_bytes(struct.pack(FORMAT, seconds))

    @property
    def env(self) -> dict[str, str]:
        """What the worker is to find."""
        return {ENVIRONMENT: str(self.path)}

    def set(self, seconds: float) -> None:
        """Step the clock of every process that looks at it."""
        with self.path.open("r+b") as file:
            file.write(struct.pack(FORMAT, seconds))


def shift_from_environment() -> None:
    """Before anything has bound `time.time` to a name of its own."""
    if not (path := os.environ.get(ENVIRONMENT)):
        return
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), struct.calcsize(FORMAT), access=mmap.ACCESS_READ)
    real = time.time

    def shifted() -> float:
        return float(real() + struct.unpack(FORMAT, shared[:])[0])

    def now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
        return cls.fromtimestamp(shifted(), tz)

    time.time = shifted
    _replace(datetime, "now", classmethod(now))


def _replace(cls: type, name: str, value: Any) -> None:
    """In a class written in C, which would refuse it: everybody has imported that one class."""
    (names,) = (each for each in gc.get_referents(cls.__dict__) if isinstance(each, dict))
    names[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
