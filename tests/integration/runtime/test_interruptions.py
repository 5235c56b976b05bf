"""The process that runs an execution is interrupted, in whatever moment: what is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from reactor_coord import Input, step, testing, with_lock
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution
from reactor_coord.testing.recorder import Recorder, client, current
from tests.integration.runtime.support import Background, eventually, row, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5, wait=20)
class Waits(Work):
    key = Input(str)


class Waiting(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    a = step(Work, seconds=0)
    charge = step(Waits, after=a)


def _interrupt_when(condition: Any) -> threading.Thread:
    """Interrupt the main thread a little after that: it is asleep by then, not in the middle of opening a socket."""

    def wait() -> None:
        eventually(condition)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _somebody_sleeps(recorder: Recorder) -> bool:
    return any(each["cmd"] == "blpop" for each in client(recorder.url).client_list())


def test_interrupted_while_it_waits_it_leaves_the_line(recorder: Recorder) -> None:
    with testing.hold("k"):
        _interrupt_when(lambda: inspect.line("k") and _somebody_sleeps(recorder))
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Waiting.run(key="k")
        assert time.monotonic() - begun < 5
        eventually(lambda: not inspect.line("k"))
    (found,) = Execution.objects.all()
    assert found.status == "aborted"
    testing.assert_free("k")


def test_interrupted_in_its_body_it_gives_back_what_it_held(recorder: Recorder) -> None:
    _interrupt_when(lambda: recorder.count("run charge"))
    with pytest.raises(KeyboardInterrupt):
        Waiting.run(key="k", seconds=20)
    testing.assert_free("k")
    (found,) = Execution.objects.all()
    assert (found.status, found.lease_token) == ("aborted", "")
    assert recorder.sequence() == ["run a", "run charge"]


def test_it_can_be_resumed_where_it_stopped(reactor_dispatches: Any, recorder: Recorder) -> None:
    _interrupt_when(lambda: recorder.count("run charge"))
    with pytest.raises(KeyboardInterrupt):
        Waiting.run(key="k", seconds=0.5)
    (found,) = Execution.objects.all()
    found.resume()
    testing.drain(timeout=5)
    found.refresh_from_db()
    assert found.status == "completed"
    assert recorder.sequence() == ["run a", "run charge", "run charge"]


def test_a_body_longer_than_its_lease_keeps_it(reactor_settings: Any, recorder: Recorder) -> None:
    from reactor_coord.workers.sweep import sweep_once

    reactor_settings(LEASE_TTL=1, SWEEP_INTERVAL=1)
    running = Background(lambda: Waiting.run(key="k", seconds=3.0))
    recorder.wait_for("run charge")
    while not running.is_done:
        sweep_once()
        time.sleep(0.2)
    outcome = running.result()
    assert outcome.succeeded
    assert row(outcome).workers_lost == 0
    assert told(outcome, "worker_lost", "aborted") == []


def test_no_thread_of_ours_is_left_working_after_a_run(recorder: Recorder) -> None:
    Waiting.run(key="k")
    ours = [each.name for each in threading.enumerate() if each.name.startswith("reactor-coord")]
    assert all(name in {"reactor-coord-leases", "reactor-coord-keeper", "reactor-coord-losses"} for name in ours)
    assert all(each.daemon for each in threading.enumerate() if each.name in ours)
    current().clear()
