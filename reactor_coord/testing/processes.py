"""Questions about processes that psutil answers: which are below one, and whether one still runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil


def tree(pid: int) -> list[int]:
    """The process and all below it that run, oldest first; empty when it is gone."""
    try:
        top = psutil.Process(pid)
        below = sorted(top.children(recursive=True), key=lambda child: float(child.create_time()))
    except psutil.NoSuchProcess:
        return []
    return [pid, *(child.pid for child in below if is_alive(child.pid))]


def is_alive(pid: int) -> bool:
    """Whether it still runs (a killed one runs no more even before its parent has reaped it)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: Sequence[int], timeout: float = 5.0) -> None:
    """Return once none of them runs; raises `TimeoutError` naming those that do."""
    deadline = time.monotonic() + timeout
    while left := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} still run after {timeout} s")
        time.sleep(0.005)
