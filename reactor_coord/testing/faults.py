"""Fault points: stop, kill, delay or break a process at a named place of the product (`reactor_coord.probes`).

A fault is a small dict, keyed by the point's name, so that it travels to worker processes in the environment:

    {"checkpoint.before": {"action": "kill", "times": 1}}

`action` is `sleep` (`seconds`), `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself), `raise` (`error`: dotted path of
an exception class, `RuntimeError` by default; `message`), `gate` (block until the test opens it) or `file` (block until
the file `path` exists; `path + ".reached"` is made first, so it works without Redis). `times` (default 1, 0: always) and
`skip` (default 0: let that many pass first) are counted over all processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from reactor_coord import probes
from reactor_coord.testing import recorder

ENVIRONMENT = "REACTOR_COORD_FAULTS"
GATE_SECONDS = 60.0


def install(faults: Mapping[str, Mapping[str, Any]]) -> None:
    """Act on these points in this process from now on; an empty mapping takes the listener away."""
    for point, fault in faults.items():
        if fault.get("action") not in _ACTIONS:
            raise ValueError(f"fault {point!r}: action {fault.get('action')!r} is none of {sorted(_ACTIONS)}")

    def listener(point: str) -> None:
        fault = faults.get(point)
        if fault is not None and _is_due(point, fault):
            _ACTIONS[fault["action"]](point, fault)

    probes.listener = listener if faults else None


def install_from_environment() -> None:
    """What a worker does at its start."""
    if raw := os.environ.get(ENVIRONMENT):
        install(json.loads(raw))


@contextlib.contextmanager
def installed(faults: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Act on these points in this process inside the block."""
    before = probes.listener
    install(faults)
    try:
        yield
    finally:
        probes.listener = before


def times_reached(point: str) -> int:
    """How often a point with a fault was reached, in all processes."""
    return int(_redis().get(_key(point, "reached")) or 0)


def wait_reached(point: str, count: int = 1, timeout: float = 10.0) -> None:
    """Wait until a point with a fault has been reached `count` times, in whatever process."""
    deadline = time.monotonic() + timeout
    while times_reached(point) < count:
        if time.monotonic() > deadline:
            raise AssertionError(
                f"fault point {point!r} was reached {times_reached(point)} times, not {count}, in {timeout} s"
            )
        time.sleep(0.01)


def open_gate(point: str) -> None:
    """Let those pass who wait at that point's gate, and all who come later."""
    _redis().set(_key(point, "open"), 1)


def _is_due(point: str, fault: Mapping[str, Any]) -> bool:
    """Counts this arrival and says whether it is one of those to act on."""
    if fault["action"] == "file":  # must work while Redis does not
        return True
    arrival = int(_redis().incr(_key(point, "reached"))) - int(fault.get("skip", 0))
    times = int(fault.get("times", 1))
    return arrival > 0 and (times == 0 or arrival <= times)


def _sleep(point: str, fault: Mapping[str, Any]) -> None:
    time.sleep(float(fault["seconds"]))


def _kill(point: str, fault: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(point: str, fault: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(point: str, fault: Mapping[str, Any]) -> None:
    module, _, name = str(fault.get("error", "builtins.RuntimeError")).rpartition(".")
    raise getattr(import_module(module), name)(fault.get("message", f"fault at {point}"))


def _gate(point: str, fault: Mapping[str, Any]) -> None:
    deadline = time.monotonic() + float(fault.get("seconds", GATE_SECONDS))
    while not _redis().exists(_key(point, "open")) and time.monotonic() < deadline:
        time.sleep(0.005)


def _file(point: str, fault: Mapping[str, Any]) -> None:
    path = Path(fault["path"])
    Path(f"{path}.reached").touch()
    deadline = time.monotonic() + float(fault.get("seconds", GATE_SECONDS))
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


_ACTIONS = {"sleep": _sleep, "kill": _kill, "stop": _stop, "raise": _raise, "gate": _gate, "file": _file}


def _redis() -> Any:
    return recorder.client(recorder.current().url)


def _key(point: str, part: str) -> str:
    return f"{recorder.current().key}:fault:{point}:{part}"
