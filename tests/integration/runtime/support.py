"""Threads, forked holders and readings of the trace, for the cases of step coordination in process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import pytest
from django.db import connections
from django.utils import timezone

from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.testing import faults
from reactor_coord.workers.sweep import sweep_once

T = TypeVar("T")


class Has(Protocol):
    """Whatever names an execution: an outcome or a handle."""

    @property
    def execution(self) -> Execution: ...


def at_once(*calls: Callable[[], T], timeout: float = 60.0) -> list[T]:
    """Run these in threads that start together; their results in the same order, or the first exception."""
    running = [Background(call) for call in calls]
    return [each.result(timeout) for each in running]


class Background:
    """One call in a thread of its own, begun at once."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._answer: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except BaseException as error:
            self._error.append(error)
        finally:
            connections.close_all()

    def result(self, timeout: float = 60.0) -> Any:
        """Wait for it; raises what it raised."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call did not end"
        if self._error:
            raise self._error[0]
        return self._answer[0]

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()


def eventually(condition: Callable[[], Any], within: float = 10.0) -> Any:
    """Wait until it is truthy, and return it."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
    return found


@contextmanager
def forked(call: Callable[[], object]) -> Iterator[int]:
    """A child process that makes the call; killed at the end of the block if it still runs."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def kill(pid: int) -> None:
    """SIGKILL a child, and reap it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def killed(run: Callable[[], object], point: str, skip: int) -> Execution:
    """Run it in a process that is killed at that point, and let the sweep find it; its row."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        faults.install({point: {"action": "kill", "skip": skip}})
        run()
        os._exit(0)
    os.waitpid(pid, 0)
    Execution.objects.exclude(lease_token="").update(lease_expires_at=timezone.now() - timedelta(seconds=5))
    sweep_once()
    row: Execution = Execution.objects.get(parent=None)
    assert row.status == "aborted"
    return row


def trace(of: Has, *kinds: str) -> list[TraceEvent]:
    """What was told of that execution's tree, in order; only of these kinds, if any are named."""
    rows = TraceEvent.objects.filter(root_id=of.execution.root_id or of.execution.pk).order_by("id")
    return list(rows.filter(kind__in=kinds) if kinds else rows)


def told(of: Has, *kinds: str) -> list[tuple[str, str, str]]:
    """Kind, step and key of what was told."""
    return [(row.kind, row.step, row.key) for row in trace(of, *kinds)]


def runs(of: Has) -> Mapping[str, StepRun]:
    """The step runs of the whole tree by step name."""
    return {run.step: run for run in StepRun.objects.filter(execution__root_id=of.execution.root_id)}


def row(of: Has) -> Execution:
    """The execution's row as it is now."""
    return Execution.objects.get(pk=of.execution.pk)


def left_undone(of: Has) -> list[str]:
    """The steps that the row lists as not rolled back."""
    found = row(of).failure
    assert found is not None
    return [entry["step"] for entry in found["rollback_failures"]]


def failure(outcome: Outcome) -> Any:
    """The failure; there must be one."""
    assert outcome.failed, outcome
    assert outcome.failure is not None
    return outcome.failure


def approximately(seconds: float, by: float = 0.4) -> Any:
    """Near this time, on a busy machine."""
    return pytest.approx(seconds, abs=by)
