"""A body that began, or may have, is cleaned up or listed, whatever becomes of its execution.

And its cleanup meets what the body met: the same arguments, under the same keys.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Skipped,
    Step,
    compose,
    element,
    map_each,
    step,
    testing,
    with_lock,
    with_period,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, StepRun
from reactor_coord.operations import verbs
from reactor_coord.runtime import deliver
from reactor_coord.testing import drain, faults
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import eventually, left_undone, runs
from tests.live.reactors import BodyFailed, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Bare(Step):
    """Has an effect, and nothing that would take it back."""

    name = Input(str, default="")

    def run(self) -> None:
        from reactor_coord.testing import recorder

        with recorder.current().recording(f"run {self.context.step}", name=self.name):
            pass


class Two(Named):
    """A step, and one under a lock."""

    key = Input(str, default="k")

    a = step(Work)
    b = step(LockedWork, after=a)


class Outer(Named):
    """The same below a composed step."""

    inner = compose(Two)


class WithBare(Named):
    """Ends with a step that has no compensate."""

    a = step(Work)
    b = step(Bare, after=a)


class Mapped(Named):
    """Elements whose second fails."""

    items = Input(list[int], default=[0, 1])

    each = map_each(Work, over=items, name=element().map(str), concurrency=1)


def dies(run: Callable[[], object], point: str = "body.after", skip: int = 0) -> None:
    """Run it in a process that is killed at the `skip`-th next passing of that point, and let the sweep find it."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        faults.install({point: {"action": "kill", "skip": skip}})
        run()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status != 0, "it was not killed"
    Execution.objects.exclude(lease_token="").update(lease_expires_at=timezone.now() - timedelta(seconds=5))
    sweep_once()


@pytest.mark.parametrize("reactor", [Two, Outer])
def test_u09_killed_in_a_body_and_cancelled_before_anything_else(
    reactor_dispatches: Any, recorder: Recorder, reactor: Any
) -> None:
    handle = reactor.enqueue()
    dies(lambda: deliver(handle.id, "w"), skip=1)
    verbs.cancel(handle.execution, reason="wrong")
    drain()
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a"]
    assert handle.status == "cancelled", handle.execution.failure


def test_u09_killed_in_the_very_first_body(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = Two.enqueue()
    dies(lambda: deliver(handle.id, "w"))
    verbs.cancel(handle.execution)
    drain()
    assert recorder.sequence() == ["run a", "comp a"]
    assert handle.status == "cancelled"


def test_u09_what_may_have_run_and_cannot_be_cleaned_is_listed(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = WithBare.enqueue()
    dies(lambda: deliver(handle.id, "w"), skip=1)
    verbs.cancel(handle.execution)
    drain()
    assert recorder.sequence() == ["run a", "run b", "undo a"]
    assert handle.status == "failed"
    assert left_undone(handle) == ["b"]
    (left,) = handle.execution.why_failed.rollback_failures  # type: ignore[union-attr]
    assert (left.reason, left.kind) == ("may_have_run", "compensate")
    assert "may have run" in left.message


def test_u10_an_element_whose_worker_was_killed_when_a_sibling_fails(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = Mapped.enqueue(fail_at="each", fails=0)
    deliver(handle.id, "w")
    first, second = Execution.objects.filter(parent=handle.id).order_by("element_index")
    dies(lambda: deliver(first.id, "w"))
    verbs.cancel(handle.execution)
    drain()
    second.refresh_from_db()
    assert recorder.sequence() == ["run each", "comp each"]
    assert {first.element_index, second.element_index} == {0, 1}


def test_u11_an_in_process_run_killed_in_a_body_is_cleaned_up_by_undo(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    dies(Two.run, skip=1)
    row = Execution.objects.get()
    assert row.status == "aborted"
    verbs.undo(row)
    drain()
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a"]


class MapFirst(Named):
    """A map, and later a step that fails once."""

    items = Input(list[int], default=[0, 1])

    each = map_each(Work, over=items, name=element().map(str))
    later = step(Work, after=each, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0))


def test_u12_a_death_while_a_map_is_written_is_charged_to_no_later_step(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = MapFirst.enqueue(fail_at="later", fails=1)
    dies(lambda: deliver(handle.id, "w"), "checkpoint.before")
    drain()
    assert handle.status == "completed", handle.execution.failure
    assert runs(handle)["later"].workers_lost == 0
    assert runs(handle)["each"].workers_lost == 1


def test_a_death_with_a_step_that_a_deploy_put_first_is_charged_to_that_one(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    """The row says `b` may begin; the code has another step first: what is to begin is written before it does."""
    handle = Two.enqueue()
    Execution.objects.filter(pk=handle.id).update(current_step=f"{handle.id}/gone")
    dies(lambda: deliver(handle.id, "w"))
    verbs.cancel(handle.execution)
    drain()
    assert recorder.sequence() == ["run a", "comp a"]


# ---- u97: whatever refuses a later attempt


class Tried(Reactor):
    """A step that fails on its first attempt; what refuses its second is the test's."""

    way = Input(str)

    @step(way=way, retry=Retry(max_attempts=3, backoff="fixed", base_delay=0))
    @with_semaphore("tried", limit=1)
    @with_lock("tried")
    @with_period("tried:{way}", every="day")
    def charge(way: str, context: Any) -> None:
        from reactor_coord.testing import recorder

        with recorder.current().recording("run charge"):
            raise BodyFailed("half done")

    @charge.compensate
    def _(error: BaseException, way: str) -> None:
        from reactor_coord.testing import recorder

        with recorder.current().recording("comp charge", error=repr(error)):
            pass


def test_u97_contention_of_the_second_attempt_does_not_lose_the_first(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = _with_the_key_gone_after_the_first(Tried, monkeypatch)
    assert outcome.failed
    assert recorder.sequence() == ["run charge", "comp charge"]
    assert outcome.failure.error_type == "LockContended"
    assert "BodyFailed: half done" in outcome.failure.cause
    assert not outcome.failure.rollback_failures


def _with_the_key_gone_after_the_first(reactor: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Between two attempts another takes the key, and gives it back before the cleanup."""
    from reactor_coord.runtime import cleanup, steps

    held: list[Any] = []

    def take(*_: Any) -> None:
        held.append(testing.hold("tried"))
        held[-1].__enter__()

    def give(frame: Any) -> None:
        while held:
            held.pop().__exit__(None, None, None)
        return real(frame)

    real = cleanup.roll_back
    monkeypatch.setattr(steps, "wait_to_retry", take)
    monkeypatch.setattr(cleanup, "roll_back", give)
    return reactor.run(way="contended")


class LeftOut(Reactor):
    """The second attempt meets a bucket that another run has marked."""

    @step(retry=Retry(max_attempts=3, backoff="fixed", base_delay=0))
    @with_period("left-out", every="day")
    def charge(context: Any) -> Any:
        from reactor_coord.testing import recorder

        if context.attempt == 1:
            recorder.current().mark("run charge")
            raise BodyFailed("half done")
        return Skipped(reason="never reached")

    @charge.compensate
    def _(error: BaseException) -> None:
        from reactor_coord.testing import recorder

        recorder.current().mark("comp charge")


def test_u97_a_second_attempt_that_would_be_skipped_fails_and_is_cleaned_up(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reactor_coord.runtime import steps

    marks: list[Any] = []

    def mark(*_: Any) -> None:
        marks.append(testing.hold("left-out", primitive="period", every="day"))
        marks[-1].__enter__()

    monkeypatch.setattr(steps, "wait_to_retry", mark)
    outcome = LeftOut.run()
    marks[0].__exit__(None, None, None)
    assert outcome.failed, outcome
    assert recorder.sequence() == ["run charge", "comp charge"]


# ---- u98: the failing step keeps what it holds through its own compensate


class Watched(Reactor):
    """Its compensate tells who could have the key meanwhile."""

    @step()
    @with_lock("watched", ttl=5)
    def charge(context: Any) -> None:
        _tokens.append(context.fence("watched"))
        raise BodyFailed("half done")

    @charge.compensate
    def _(error: BaseException, context: Any) -> None:
        _tokens.append(context.fence("watched"))


_tokens: list[int] = []


@pytest.mark.parametrize("way", ["run", "enqueue"])
def test_u98_a_failing_step_keeps_its_lock_through_its_own_compensate(reactor_dispatches: Any, way: str) -> None:
    _tokens.clear()
    if way == "run":
        Watched.run()
    else:
        Watched.enqueue()
        drain()
    assert len(_tokens) == 2
    assert _tokens[0] == _tokens[1], "the lock was given back in between"
    with testing.hold("watched"):  # and it is free afterwards
        pass


# ---- C: the undo meets what the step met


class Changes(Reactor):
    """A body that changes what it was given; a later step fails."""

    order = Input(dict)

    @step(order=order)
    @with_lock("acct:{order[account]}")
    def charge(order: dict[str, str]) -> dict[str, str]:
        order["account"] = order["account"].upper()
        _seen.append(("run", order["account"]))
        return order

    @charge.undo
    def _(result: Any, order: dict[str, str], context: Any) -> None:
        _seen.append(("undo", order["account"], *sorted(str(key) for key in context.holds)))

    @step(order=order, charged=charge)
    def check(order: dict[str, str], charged: dict[str, str]) -> None:
        _seen.append(("check", order["account"], charged["account"]))
        charged["account"] = "changed"
        raise BodyFailed("no")


_seen: list[tuple[str, ...]] = []


@pytest.mark.parametrize("way", ["run", "enqueue"])
def test_u14_u16_what_a_body_does_to_its_arguments_is_seen_by_nothing_else(reactor_dispatches: Any, way: str) -> None:
    _seen.clear()
    if way == "run":
        Changes.run(order={"account": "de12"})
    else:
        Changes.enqueue(order={"account": "de12"})
        drain()
    run, check, undo = _seen
    assert run == ("run", "DE12")
    assert check == ("check", "de12", "DE12")
    assert undo[:2] == ("undo", "de12")
    assert "acct:de12" in undo[2]


_count = itertools.count(1)


class Counted(Reactor):
    """A key that is another at every look."""

    @step(retry=Retry(max_attempts=2, backoff="fixed", base_delay=0))
    @with_lock(lambda args: f"counted:{next(_count)}")
    def charge(context: Any) -> None:
        _seen.append(("run", *(str(key) for key in context.holds)))
        if context.attempt == 1:
            raise BodyFailed("once more")

    @charge.undo
    def _(result: Any, context: Any) -> None:
        _seen.append(("undo", *(str(key) for key in context.holds)))

    @step(after=charge)
    def check() -> None:
        raise BodyFailed("no")


@pytest.mark.parametrize("way", ["run", "enqueue"])
def test_u15_a_retry_and_an_undo_ask_for_the_key_that_was_held(reactor_dispatches: Any, way: str) -> None:
    _seen.clear()
    if way == "run":
        Counted.run()
    else:
        Counted.enqueue()
        drain()
    first, again, undo = _seen
    assert first[1:] == again[1:] == undo[1:]


@with_lock(lambda args: f"reactor:{next(_count)}")
class CountedReactor(Reactor):
    """The same at the reactor, undone after its end."""

    @step()
    def charge(context: Any) -> None:
        _seen.append(("run", *(str(key) for key in context.holds)))

    @charge.undo
    def _(result: Any, context: Any) -> None:
        _seen.append(("undo", *(str(key) for key in context.holds)))


def test_u15_the_undo_of_a_finished_execution_asks_for_its_reactors_own_key(reactor_dispatches: Any) -> None:
    _seen.clear()
    outcome = CountedReactor.run()
    verbs.undo(outcome.execution)
    drain()
    run, undo = _seen
    assert run[1:] == undo[1:]


def test_which_step_may_begin_is_written_with_what_is_written_anyway(reactor_dispatches: Any) -> None:
    """No commit of its own: it stands in the row at every moment a process could die in a body."""
    handle = Outer.enqueue()
    assert handle.execution.current_step == f"{handle.id}/inner"
    drain()
    assert handle.execution.current_step == ""
    assert StepRun.objects.filter(status="succeeded").count() == 3


@pytest.mark.slow
def test_a_step_given_up_after_too_many_deaths_is_compensated_with_its_arguments(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    """No attempt came to its end, so nothing wrote its arguments: they are resolved again, and make its key."""
    handle = Two.enqueue(key="mine")
    deliver_until_dead(handle, times=3)
    drain()
    assert handle.status == "failed"
    why = handle.execution.why_failed
    assert why is not None
    assert (why.step, why.error_type, why.rollback_failures) == ("b", "WorkerLost", ())
    assert recorder.sequence() == ["run a", "run b", "run b", "run b", "comp b", "undo a"]
    [compensated] = recorder.intervals("comp b")
    assert compensated.notes["key"] == "mine"


def deliver_until_dead(handle: Any, *, times: int) -> None:
    """Have that many workers die in the body of `b`, the first after it has done `a`."""
    for number in range(times):
        dies(lambda: deliver(handle.id, "w"), skip=number + 1)
        eventually(lambda: inspect.look("mine").hold is None)  # the dead one's hold lapses
