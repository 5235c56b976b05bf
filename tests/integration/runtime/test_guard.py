"""The guard, as its owner wrote it: it passes, or it ends the step, and no body runs on an answer that is neither."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from reactor_coord import (
    Failure,
    GuardError,
    Halt,
    Input,
    Reactor,
    ReactorFailed,
    Retry,
    Skipped,
    Step,
    Success,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    testing,
    with_lock,
    with_period,
    with_rate_limit,
)
from reactor_coord.operations import views
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, eventually, failure, row, runs, told
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

ANSWERS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda speaker: None,
    "true": lambda speaker: True,
    "success": lambda speaker: Success(),
    "succeed": lambda speaker: speaker.succeed(),
    "failure": lambda speaker: Failure("refused"),
    "fail": lambda speaker: speaker.fail("refused"),
    "raise": lambda speaker: _raise(LookupError("refused")),
    "skipped": lambda speaker: Skipped(7, "refused"),
    "skip": lambda speaker: speaker.skip(value=7, reason="refused"),
    "halted": lambda speaker: Halt(7, "refused"),
    "halt": lambda speaker: speaker.halt(value=7, reason="refused"),
    "false": lambda speaker: False,
    "text": lambda speaker: "refused",
    "success_value": lambda speaker: Success(7),
    "succeed_value": lambda speaker: speaker.succeed(7),
}
PASSES = {"nothing", "true", "success", "succeed"}
SKIPS, HALTS = {"skipped", "skip"}, {"halted", "halt"}
FAILS = {"failure": "Failure", "fail": "Failure", "raise": "LookupError"}
UNCLEAR = {"false", "text", "success_value", "succeed_value"}


def _raise(error: Exception) -> Any:
    raise error


class Guarded(Step):
    """Its guard gives the answer of that name."""

    answer = Input(str)
    retry = Retry(max_attempts=3, backoff="fixed", base_delay=0.01)

    def guard(self) -> Any:
        current().mark("guard")
        return ANSWERS[self.answer](self)

    def run(self) -> str:
        current().mark("run")
        return "done"

    def compensate(self, error: Any) -> None:
        current().mark("compensate")

    def undo(self, result: Any) -> None:
        current().mark(f"undo {result}")


class ByClass(Named):
    answer = Input(str)
    charge = step(Guarded)
    behind = step(Work, after=charge)
    returns = charge


class ByInline(Named):
    answer = Input(str)

    @step(retry=Retry(max_attempts=3, backoff="fixed", base_delay=0.01))
    def charge() -> str:
        current().mark("run")
        return "done"

    @charge.guard
    def _(answer: Any, context: Any) -> Any:
        current().mark("guard")
        return ANSWERS[answer](context)

    @charge.compensate
    def _(error: Any) -> None:
        current().mark("compensate")

    @charge.undo
    def _(result: Any) -> None:
        current().mark(f"undo {result}")

    behind = step(Work, after=charge)
    returns = charge


REACTORS = {"class": ByClass, "inline": ByInline}


def _start(reactor: type[Reactor], mode: str, **inputs: Any) -> Any:
    started = reactor.run(**inputs) if mode == "run" else reactor.enqueue(**inputs)
    testing.drain(timeout=10)
    return started


@pytest.mark.parametrize("mode", ["run", "enqueue"])
@pytest.mark.parametrize("reactor", REACTORS.values(), ids=list(REACTORS))
@pytest.mark.parametrize("answer", ANSWERS)
def test_u87_every_answer_of_a_guard_counts(
    answer: str, reactor: type[Reactor], mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    started = _start(reactor, mode, answer=answer)
    found = row(started)
    marks = [mark for mark in recorder.sequence() if not mark.endswith("behind")]
    if answer in PASSES:
        assert found.status == "completed"
        assert marks == ["guard", "run"]
    elif answer in SKIPS:
        assert found.status == "completed"
        assert (runs(started)["charge"].status, runs(started)["charge"].reason) == ("skipped", "refused")
        assert found.result == 7
    elif answer in HALTS:
        assert (found.status, found.reason, found.result) == ("halted", "refused", 7)
    else:
        assert found.status == "failed"
        assert found.failure is not None
        assert found.failure["error_type"] == FAILS.get(answer, "GuardError")
        told_of = "Guarded.guard" if reactor is ByClass else "charge.guard"
        assert (told_of if answer in UNCLEAR else "refused") in found.failure["message"]
    if answer not in PASSES:
        assert marks == ["guard"]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
@pytest.mark.parametrize("reactor", REACTORS.values(), ids=list(REACTORS))
def test_u86_a_guard_that_says_success_has_passed_and_run_follows_and_is_undone_as_any_step(
    reactor: type[Reactor], mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    started = _start(reactor, mode, answer="succeed", fail_at="behind")
    assert row(started).status == "failed"
    assert [mark for mark in recorder.sequence() if not mark.endswith("behind")] == ["guard", "run", "undo done"]


@pytest.mark.parametrize("reactor", REACTORS.values(), ids=list(REACTORS))
@pytest.mark.parametrize("answer", sorted(SKIPS))
def test_u86_what_a_guard_skipped_with_a_value_is_read_and_never_undone(
    answer: str, reactor: type[Reactor], recorder: Recorder
) -> None:
    outcome = reactor.run(answer=answer, fail_at="behind")
    assert outcome.failed
    assert outcome.results["charge"] == 7
    assert [mark for mark in recorder.sequence() if not mark.endswith("behind")] == ["guard"]


@pytest.mark.parametrize("reactor", REACTORS.values(), ids=list(REACTORS))
@pytest.mark.parametrize("answer", sorted(HALTS))
def test_u86_what_a_guard_halted_is_not_undone_by_an_operator_either(
    answer: str, reactor: type[Reactor], reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = reactor.run(answer=answer)
    outcome.execution.undo()
    testing.drain(timeout=10)
    assert recorder.sequence() == ["guard"]


class EmailService:
    """Remembers to whom mail went today."""

    sent: list[str] = []

    @classmethod
    def sent_today(cls, email: str) -> bool:
        return email in cls.sent


class SendEmail(Step):
    """The owner's example."""

    email = Input(str, pattern=r"[^@\s]+@[^@\s]+")

    def guard(self) -> None:
        if EmailService.sent_today(self.email):
            self.fail("Prevent spamming")
        self.succeed()

    def run(self) -> str:
        EmailService.sent.append(self.email)
        return self.email


class Mail(Reactor):
    email = Input(str)
    send = step(SendEmail)


def test_u86_the_owners_example_sends_once_and_refuses_the_second() -> None:
    EmailService.sent.clear()
    assert Mail.run(email="ann@example.org").value == "ann@example.org"
    refused = Mail.run(email="ann@example.org")
    assert refused.failed
    assert (failure(refused).step, failure(refused).message) == ("send", "Prevent spamming")
    assert EmailService.sent == ["ann@example.org"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_u87_a_step_called_by_itself_is_guarded_alike(answer: str, recorder: Recorder) -> None:
    error: type[Exception] | None = None
    if answer in FAILS:
        error = LookupError if answer == "raise" else ReactorFailed
    elif answer in UNCLEAR:
        error = GuardError
    if error is not None:
        with pytest.raises(error):
            Guarded.call(answer=answer)
    else:
        assert Guarded.call(answer=answer) == ("done" if answer in PASSES else 7)
    assert recorder.sequence() == (["guard", "run"] if answer in PASSES else ["guard"])


class Mapped(Reactor):
    answers = Input(list[str])
    each = map_each(Guarded, over=answers, answer=element())


class HandedOff(Reactor):
    answer = Input(str)
    unit = async_step(Guarded)
    returns = unit


@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_u87_the_guard_of_an_element_of_a_map_counts(mode: str, reactor_dispatches: Any, recorder: Recorder) -> None:
    started = _start(Mapped, mode, answers=["true", "skipped", "succeed"])
    assert (row(started).status, row(started).result) == ("completed", ["done", 7, "done"])
    assert sorted(recorder.sequence()) == ["guard"] * 3 + ["run"] * 2
    recorder.clear()
    started = _start(Mapped, mode, answers=["false"])
    assert row(started).status == "failed"
    assert recorder.sequence() == ["guard"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_u87_the_guard_of_an_async_step_counts(answer: str, reactor_dispatches: Any, recorder: Recorder) -> None:
    started = _start(HandedOff, "enqueue", answer=answer)
    ends = "completed" if answer in PASSES | SKIPS else "halted" if answer in HALTS else "failed"
    assert row(started).status == ends
    assert recorder.sequence() == (["guard", "run"] if answer in PASSES else ["guard"])


@with_lock("k", ttl=5)
class LockedGuarded(Guarded):
    """Declares a key."""


class Locked(Reactor):
    answer = Input(str)
    charge = step(LockedGuarded)


@pytest.mark.parametrize("answer", sorted(ANSWERS.keys() - PASSES))
def test_u87_what_a_guard_ended_has_taken_nothing(answer: str, recorder: Recorder) -> None:
    with testing.hold("k"):
        outcome = Locked.run(answer=answer)
    assert told(outcome, "acquired", "refused", "released") == []
    assert recorder.sequence() == ["guard"]


WHERE_ANSWERS: dict[str, tuple[Callable[[], Any], str]] = {
    "failure": (lambda: Failure("refused"), "failed"),
    "skipped": (lambda: Skipped(7, "refused"), "completed"),
    "halt": (lambda: Halt(7, "refused"), "halted"),
    "success_value": (lambda: Success(7), "failed"),
}


@pytest.mark.parametrize("answer", WHERE_ANSWERS)
def test_a_verdict_of_where_is_no_truth_that_lets_the_body_run(answer: str, recorder: Recorder) -> None:
    said, ends = WHERE_ANSWERS[answer]

    class Conditional(Named):
        charge = step(Work, where=lambda: said())

    outcome = Conditional.run()
    assert outcome.status == ends
    assert recorder.sequence() == []


# ---- when it is asked


class Changing(Step):
    """Passes `passes` times, then says what `then` says; marks each time that it is asked."""

    key = Input(str, default="k")
    passes = Input(int, default=100)
    then = Input(str, default="skip")
    fails = Input(int, default=0)

    def guard(self) -> Any:
        current().mark("guard")
        return True if current().count("guard") <= self.passes else ANSWERS[self.then](self)

    def run(self) -> str:
        current().mark("run")
        if self.context.attempt <= self.fails:
            raise ConnectionError("told to fail")
        return "done"

    def compensate(self, error: Any) -> None:
        current().mark("compensate")


@with_lock("{key}", ttl=5, wait=10)
class ChangingUnderLock(Changing):
    """Under one key."""


@with_rate_limit("{key}", limit=1, period=60)
class ChangingUnderLockAndLimit(ChangingUnderLock):
    """Under one key, and a start a minute."""


class Waiting(Reactor):
    passes = Input(int, default=100)
    then = Input(str, default="skip")
    fails = Input(int, default=0)
    charge = step(ChangingUnderLock, retry=Retry(max_attempts=3, backoff="fixed", base_delay=0.01))
    returns = charge


class WaitingLimited(Reactor):
    passes = Input(int, default=100)
    charge = step(ChangingUnderLockAndLimit)


def _look_again(started: Any, times: int) -> None:
    for _ in range(times):
        deliver(str(started.id), "testing")
        assert row(started).status == "parked"


def test_u119_a_guard_is_asked_before_the_wait_and_once_more_under_the_keys(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k"):
        handle = Waiting.enqueue()
        testing.drain()
        _look_again(handle, 5)
        assert recorder.sequence() == ["guard"]
    testing.drain(timeout=10)
    assert row(handle).status == "completed"
    assert recorder.sequence() == ["guard", "guard", "run"]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_u119_a_guard_of_a_step_that_did_not_wait_is_asked_once(
    mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    assert row(_start(Waiting, mode)).status == "completed"
    assert recorder.sequence() == ["guard", "run"]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_u119_a_guard_is_not_asked_again_once_an_attempt_has_begun(
    mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    assert row(_start(Waiting, mode, fails=2, passes=1)).status == "completed"
    assert recorder.sequence() == ["guard", "run", "run", "run"]


def test_u119_a_retry_that_waits_is_not_asked_either(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = Waiting.enqueue(fails=1, passes=1)
    deliver(str(handle.id), "testing")
    assert row(handle).park_kind == "retry"
    with testing.hold("k"):
        testing.drain(timeout=1)
        assert row(handle).park_kind == "contention"
    testing.drain(timeout=10)
    assert row(handle).status == "completed"
    assert recorder.sequence() == ["guard", "run", "run"]


@pytest.mark.parametrize("way", ["run", "call"])
def test_u119_in_process_too_who_waited_is_asked_once_more(way: str, recorder: Recorder) -> None:
    call: Callable[[], Any] = (
        (lambda: Waiting.run(passes=1)) if way == "run" else lambda: ChangingUnderLock.call(passes=1)
    )
    with testing.hold("k"):
        waiting = Background(call)
        recorder.wait_for("guard")
        eventually(lambda: views.waiters().rows)
    waiting.result()
    assert recorder.sequence() == ["guard", "guard"]
    assert views.hold("k") is None


@pytest.mark.parametrize("then", ["fail", "raise", "false"])
def test_u119_a_guard_that_refuses_after_the_wait_is_never_retried_nor_compensated(
    then: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k"):
        handle = Waiting.enqueue(passes=1, then=then)
        testing.drain()
    testing.drain(timeout=10)
    assert row(handle).status == "failed"
    assert recorder.sequence() == ["guard", "guard"]
    assert runs(handle)["charge"].attempts == 0


class Retried(Reactor):
    """The composed reactor is run afresh when it fails; not when its guard refused."""

    answer = Input(str)
    child = compose(ByClass, retry=Retry(max_attempts=3, backoff="fixed", base_delay=0.01))


@pytest.mark.parametrize("answer", ["fail", "failure", "raise", "false"])
def test_u119_a_composed_reactor_is_not_run_afresh_for_a_guard_that_refused(answer: str, recorder: Recorder) -> None:
    assert Retried.run(answer=answer).failed
    assert recorder.sequence() == ["guard"]


class LockedMail(Reactor):
    """Two of these for one address wait for one lock."""

    email = Input(str)

    @step
    @with_lock("mail:{email}", ttl=5)
    def send(email: str) -> str:
        EmailService.sent.append(email)
        return email

    @send.guard
    def _(email: str, context: Any) -> None:
        if EmailService.sent_today(email):
            context.fail("Prevent spamming")
        context.succeed()


def test_u119_of_two_mails_that_wait_for_one_lock_the_second_sees_that_the_first_was_sent(
    reactor_dispatches: Any,
) -> None:
    EmailService.sent.clear()
    with testing.hold("mail:ann@example.org"):
        both = [LockedMail.enqueue(email="ann@example.org") for _ in range(2)]
        testing.drain()
        assert [row(each).status for each in both] == ["parked", "parked"]
    testing.drain(timeout=10)
    assert [row(each).status for each in both] == ["completed", "failed"]
    assert EmailService.sent == ["ann@example.org"]


def test_u115_a_guard_that_refuses_after_the_wait_spends_no_start(reactor_dispatches: Any, recorder: Recorder) -> None:
    with testing.hold("k"):
        refused = WaitingLimited.enqueue(passes=1)
        testing.drain()
    testing.drain(timeout=10)
    assert runs(refused)["charge"].status == "skipped"
    assert told(refused, "acquired") == [("acquired", "charge", "k")]
    recorder.clear()
    assert WaitingLimited.run().succeeded


class Next(Reactor):
    """Who stands behind in the line."""

    charge = step(LockedWork, key="k")


@with_period("report", every="day")
@with_lock("k", ttl=5)
class Periodic(Work):
    """Once a day, under one key."""


@with_lock("k", ttl=5)
class Conditional(Work):
    """Wanted only until it has waited."""

    def where(self) -> bool:
        current().mark("where")
        return current().count("where") == 1


class SkipsByGuard(Reactor):
    charge = step(ChangingUnderLock, passes=1)
    answer = interrupt(after=charge)


class SkipsByPeriod(Reactor):
    charge = step(Periodic)
    answer = interrupt(after=charge)


class SkipsByWhere(Reactor):
    charge = step(Conditional)
    answer = interrupt(after=charge)


@pytest.mark.parametrize("reactor", [SkipsByGuard, SkipsByPeriod, SkipsByWhere])
def test_u115_who_is_woken_and_then_skips_passes_its_grant_on_at_once(
    reactor: type[Reactor], reactor_dispatches: Any, reactor_settings: Any, recorder: Recorder
) -> None:
    reactor_settings(HANDOFF_GRACE=60)
    with ExitStack() as meanwhile:
        with testing.hold("k"):
            first = reactor.enqueue()
            testing.drain()
            behind = Next.enqueue()
            testing.drain()
            assert [row(first).status, row(behind).status] == ["parked", "parked"]
            if reactor is SkipsByPeriod:
                meanwhile.enter_context(testing.hold("report", "period"))
        testing.drain()
    assert runs(first)["charge"].status == "skipped"
    assert row(first).status == "paused"
    assert row(behind).status == "completed"


@with_lock("k", ttl=5)
class ComposedConditional(Named):
    inner = step(Work)


class Composing(Reactor):
    """A composed reactor around which a key is waited for."""

    child = compose(ComposedConditional, coordination=[with_lock("outer", ttl=5)], where=lambda: _wanted())


def _wanted() -> bool:
    current().mark("where")
    return current().count("where") == 1


def test_u115_a_compose_that_is_not_wanted_any_more_after_its_wait_begins_nothing(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("outer"):
        handle = Composing.enqueue()
        testing.drain()
        _look_again(handle, 2)
    testing.drain(timeout=10)
    assert row(handle).status == "completed"
    assert runs(handle)["child"].status == "skipped"
    assert recorder.sequence() == ["where", "where"]
    assert views.hold("outer") is None
