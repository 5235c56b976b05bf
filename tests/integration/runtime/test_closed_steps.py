"""An execution that is over has no step that waits or is to be tried again, whatever the step waited for and however it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from reactor_coord import Input, Retry, compose, interrupt, step, testing, with_lock
from reactor_coord.models import StepRun
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import runs, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=30)
class Guarded(Work):
    """Waits for its key."""

    key = Input(str, default="k")


class Again(Work):
    """Fails, and is to be tried again in an hour."""

    retry = Retry(max_attempts=3, base_delay=3600, jitter=0)


class WaitsForAKey(Named):
    """Parked at `waiting`."""

    a = step(Work)
    waiting = step(Guarded, after=a)


class WaitsToRetry(Named):
    """Its second step has begun once."""

    a = step(Work)
    waiting = step(Again, after=a, fail_at="waiting")


class WaitsForAnAnswer(Named):
    """Paused at `waiting`."""

    a = step(Work)
    waiting = interrupt(after=a)


class WaitsBelow(Named):
    """The step that waits is a composed child's."""

    below = compose(WaitsForAKey)


WAYS: dict[str, Callable[[], ExecutionHandle]] = {
    "key": lambda: WaitsForAKey.enqueue(),
    "retry": lambda: WaitsToRetry.enqueue(),
    "answer": lambda: WaitsForAnAnswer.enqueue(),
    "below": lambda: WaitsBelow.enqueue(),
}


def cancelled(way: str) -> ExecutionHandle:
    """An execution that waits in this way, and was then cancelled."""
    with ExitStack() as around:
        if way in {"key", "below"}:
            around.enter_context(testing.hold("k"))
        handle = WAYS[way]()
        testing.drain()
        handle.cancel("no longer wanted")
        testing.drain()
    return handle


def open_steps(handle: ExecutionHandle) -> list[tuple[str, str]]:
    """Steps of the whole tree that say they will go on."""
    open_runs = StepRun.objects.filter(
        execution__root=handle.id, status__in=["waiting", "retrying", "running", "dispatched"]
    )
    return list(open_runs.values_list("step", "status"))


@pytest.mark.parametrize("way", WAYS)
def test_u47_no_step_of_a_cancelled_execution_waits(way: str, recorder: Recorder, reactor_dispatches: Any) -> None:
    handle = cancelled(way)
    assert handle.status == "cancelled"
    assert open_steps(handle) == []
    waiting = StepRun.objects.get(execution__root=handle.id, step="waiting")
    if way == "retry":  # it had begun: it was cleaned up
        assert waiting.status == "compensated"
        assert recorder.sequence() == ["run a", "run waiting", "comp waiting", "undo a"]
    else:
        assert waiting.status == "cancelled" and waiting.finished_at is not None
        assert recorder.sequence() == ["run a", "undo a"]


def test_a_step_that_is_closed_is_told_once(reactor_dispatches: Any) -> None:
    handle = cancelled("answer")
    assert told(handle, "step_cancelled", "cancelled") == [("step_cancelled", "waiting", ""), ("cancelled", "", "")]


class Stubborn(Again):
    """Its first cleanup fails."""

    def compensate(self, error: BaseException) -> None:
        """Fail once."""
        super().compensate(error)
        self.refuse_once()

    def undo(self, result: Any) -> None:
        """Fail once."""
        super().undo(result)
        self.refuse_once()

    def refuse_once(self) -> None:
        """Fail the cleanup, but for the second time."""
        if not REFUSED:
            REFUSED.append(self.context.step)
            self.fail("not now")


REFUSED: list[str] = []


class BehindOneUndone(Named):
    """One step never begins, and the undo of the one before it fails at first."""

    first = step(Stubborn)
    waiting = interrupt(after=first)


class RetryUndone(Named):
    """What is to be tried again cannot be compensated at first."""

    waiting = step(Stubborn, fail_at="waiting")


@pytest.mark.parametrize(
    "reactor, after, labels",
    [
        (BehindOneUndone, {"first": "undone", "waiting": "cancelled"}, ["run first", "undo first", "undo first"]),
        (RetryUndone, {"waiting": "compensated"}, ["run waiting", "comp waiting", "comp waiting"]),
    ],
)
def test_a_rollback_done_again_takes_up_what_it_left_and_no_step_that_never_began(
    reactor: type[Named], after: dict[str, str], labels: list[str], recorder: Recorder, reactor_dispatches: Any
) -> None:
    REFUSED.clear()
    handle = reactor.enqueue()
    testing.drain()
    handle.cancel("no longer wanted")
    testing.drain()
    assert handle.status == "failed"
    assert runs(handle)["waiting"].status == "cancelled"
    handle.execution.undo()
    testing.drain()
    assert {name: run.status for name, run in runs(handle).items()} == after
    assert recorder.sequence() == labels
