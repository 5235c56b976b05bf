"""Fault points that a test arms while a worker runs: one worker serves many kills, as only its children die.

    remote.arm("body.after", "kill", skip=1)    # the second body that ends takes its process with it

A worker listens when its environment says so (`REMOTE_FAULTS = True` in the test module). Each arrival at a point takes the
next order from that point's list in Redis, whatever process it is in.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from reactor_coord import probes
from reactor_coord.testing import recorder

ENVIRONMENT = "RC_TEST_REMOTE_FAULTS"


def arm(point: str, action: str, *, skip: int = 0) -> None:
    """Have the next arrival at the point, after `skip` others, `kill` or `stop` its process or wait at a `gate`."""
    _redis().rpush(_name(point), *["pass"] * skip, action)


def disarm() -> None:
    """Forget all orders, and open the gates."""
    for name in _redis().scan_iter(match=f"{_name('*')}"):
        _redis().delete(name)


def is_pending(point: str) -> bool:
    """Whether an order for that point has not been carried out yet."""
    return bool(_redis().exists(_name(point)))


def listen() -> None:
    """Obey from now on, in this process and its children, beside whoever listened before."""
    before = probes.listener

    def listener(point: str) -> None:
        if before is not None:
            before(point)
        order = _redis().lpop(_name(point))
        if order == "kill":
            recorder.current().gone(os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        elif order == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif order == "gate":
            _redis().set(_name(f"{point}:gate"), 1)
            while _redis().exists(_name(f"{point}:gate")):
                time.sleep(0.005)

    probes.listener = listener


def wait_at_gate(point: str, timeout: float = 10.0) -> None:
    """Wait until a process stands at that point's gate."""
    deadline = time.monotonic() + timeout
    while not _redis().exists(_name(f"{point}:gate")):
        assert time.monotonic() < deadline, f"nobody came to the gate at {point} in {timeout} s"
        time.sleep(0.01)


def open_gate(point: str) -> None:
    """Let the process at the gate go on."""
    _redis().delete(_name(f"{point}:gate"))


def _name(point: str) -> str:
    return f"{recorder.current().key}:remote:{point}"


def _redis() -> Any:
    return recorder.client(recorder.current().url)


if os.environ.get(ENVIRONMENT) and "REACTOR_COORD_LIVE_WORKER" in os.environ:
    listen()
