"""Attempts, verdicts, and errors of every kind: what is tried again, what is compensated, what a failure says."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded

import reactor_coord.workers  # noqa: F401 - a worker has it
from reactor_coord import Input, Reactor, Retry, Step, compose, step, testing, with_lock
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import failure, row, runs, told, trace
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Numbered(Step):
    """Records its attempt's number and fails."""

    def run(self) -> None:
        current().mark(f"attempt {self.context.attempt}")
        raise ConnectionError("again and again")

    def compensate(self, error: BaseException) -> None:
        current().mark(f"comp {type(error).__name__}")


@pytest.mark.parametrize("attempts", [1, 2, 4])
@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_b108_attempts_are_as_many_as_declared(
    attempts: int, mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Trying(Reactor):
        charge = step(Numbered, retry=Retry(max_attempts=attempts, backoff="fixed", base_delay=0.02))

    started: Any = Trying.run() if mode == "run" else Trying.enqueue()
    testing.drain(timeout=10)
    assert row(started).status == "failed"
    numbers = [f"attempt {number}" for number in range(1, attempts + 1)]
    compensated = recorder.sequence()[attempts:]
    assert recorder.sequence()[:attempts] == numbers
    assert len(compensated) == 1
    assert runs(started)["charge"].attempts == attempts
    assert [event.data["attempt"] for event in trace(started, "retrying")] == list(range(1, attempts))


def test_only_the_errors_named_are_tried_again(recorder: Recorder) -> None:
    class Trying(Reactor):
        charge = step(Numbered, retry=Retry(max_attempts=3, base_delay=0.01, on=(TimeoutError,)))

    assert Trying.run().failed
    assert recorder.sequence() == ["attempt 1", "comp ConnectionError"]


def test_a_failure_that_is_not_retryable_spends_no_retry(recorder: Recorder) -> None:
    class Final(Reactor):
        @step(retry=Retry(max_attempts=3, base_delay=0.01))
        def charge(context: Any) -> None:
            current().mark("run")
            context.fail("for good", retryable=False)

    assert Final.run().failed
    assert recorder.sequence() == ["run"]


def test_park_04_in_process_contention_spends_no_attempt(reactor_dispatches: Any, recorder: Recorder) -> None:
    @with_lock("{key}", ttl=5)
    class Locked(Numbered):
        key = Input(str)
        retry = Retry(max_attempts=2, backoff="fixed", base_delay=0.02)

    class Contended(Reactor):
        key = Input(str)
        charge = step(Locked)

    with testing.hold("k"):
        handle = Contended.enqueue(key="k")
        testing.drain()
        assert handle.status == "parked"
        assert runs(handle)["charge"].contention_attempts == 1
    testing.drain(timeout=10)
    assert handle.status == "failed"
    assert recorder.sequence()[:2] == ["attempt 1", "attempt 2"]


class _Odd(Exception):
    """Cannot be pickled, cannot be printed, has an argument that is no string."""

    def __init__(self, code: Any) -> None:
        super().__init__(lambda: code)

    def __str__(self) -> str:
        raise RuntimeError("no words")


class _Chained(Exception):
    pass


def _raise_odd() -> None:
    raise _Odd(7)


def _raise_chained() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise _Chained("outer") from error


def _raise_nul() -> None:
    raise ValueError("a\x00b \ud800 " + "x" * 10_000)


@pytest.mark.parametrize(
    "raising, name, message",
    [(_raise_odd, "_Odd", "_Odd"), (_raise_chained, "_Chained", "outer"), (_raise_nul, "ValueError", "a\ufffdb")],
)
@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_b109_the_failure_is_the_original_error_and_step(
    raising: Any, name: str, message: str, mode: str, reactor_dispatches: Any
) -> None:
    class Raising(Named):
        a = step(Work)

        @step(after=a)
        def charge() -> None:
            raising()

    started: Any = Raising.run() if mode == "run" else Raising.enqueue()
    testing.drain()
    found = row(started)
    assert found.status == "failed"
    assert found.failure is not None
    assert (found.failure["step"], found.failure["error_type"]) == ("charge", name)
    assert message in found.failure["message"]
    error = runs(started)["charge"].error
    assert error is not None
    assert error["type"] == name
    assert error["traceback"]
    if mode == "run":
        assert isinstance(started.failure.error, BaseException)
        with pytest.raises(Exception, match="charge") as caught:
            started.unwrap()
        assert caught.value.__cause__ is started.failure.error


class _Unserializable:
    pass


@with_lock("{key}", ttl=5)
class _Keyed(Work):
    key = Input(Any, default="k")


def _breaks(*_: Any, **__: Any) -> Any:
    raise LookupError("broken outside of the body")


class _BrokenGuard(Work):
    def guard(self) -> None:
        _breaks()


class _BrokenWhere(Work):
    def where(self) -> bool:
        return bool(_breaks())


@with_lock(_breaks, ttl=5)
class _BrokenKey(Work):
    pass


class _Strict(Work):
    number = Input(int, ge=10)


class _BadResult(Work):
    def run(self) -> Any:
        current().mark(f"run {self.context.step}")
        return _Unserializable()


class _Base(Named):
    one = step(Work)
    two = step(Work, after=one)


class _Argument(_Base):
    three = step(Work, name=_Base.two.map(_breaks), after=_Base.two)


class _Where(_Base):
    three = step(Work, where=lambda name: _breaks(name), after=_Base.two)


class _WhereMethod(_Base):
    three = step(_BrokenWhere, after=_Base.two)


class _Guard(_Base):
    three = step(_BrokenGuard, after=_Base.two)


class _Key(_Base):
    three = step(_BrokenKey, after=_Base.two)


class _Validation(_Base):
    three = step(_Strict, number=1, after=_Base.two)


class _Result(_Base):
    three = step(_BadResult, after=_Base.two)


BROKEN = [
    (_Argument, "LookupError", False),
    (_Where, "LookupError", False),
    (_WhereMethod, "LookupError", False),
    (_Guard, "LookupError", False),
    (_Key, "CoordinationKeyError", False),
    (_Validation, "InputValidationError", False),
    (_Result, "CodecError", True),
]


@pytest.mark.parametrize("reactor, error, began", BROKEN, ids=[each[0].__name__ for each in BROKEN])
@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_b117_what_breaks_outside_the_body_rolls_back_as_well(
    reactor: type[Reactor], error: str, began: bool, mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    started: Any = reactor.run() if mode == "run" else reactor.enqueue()
    testing.drain()
    found = row(started)
    assert found.status == "failed"
    assert found.failure is not None
    assert (found.failure["step"], found.failure["error_type"]) == ("three", error)
    ran = ["run three", "comp three"] if began else []
    assert recorder.sequence() == ["run one", "run two", *ran, "undo two", "undo one"]


class _Custom(BaseException):
    """Not an Exception, and no interruption either."""


ROLLED_BACK = [RecursionError, MemoryError, _Custom, asyncio.TimeoutError]
IN_A_WORKER = [SoftTimeLimitExceeded]
"""What Celery raises in a body that took too long; workers count it among the interruptions."""

INTERRUPTING = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]


def _throwing(error: type[BaseException], where: str) -> type[Reactor]:
    class Throwing(Step):
        def run(self) -> None:
            current().mark("run throwing")
            if where in {"run", "compensate"}:
                raise (error if where == "run" else ArithmeticError)("thrown")

        def compensate(self, _: BaseException) -> None:
            current().mark("comp throwing")
            if where == "compensate":
                raise error("thrown")

        def undo(self, result: None) -> None:
            current().mark("undo throwing")
            if where == "undo":
                raise error("thrown")

    class Threw(Named):
        a = step(Work)
        throwing = step(Throwing, after=a)
        z = step(Work, after=throwing)

    return Threw


@pytest.mark.parametrize("error", ROLLED_BACK)
@pytest.mark.parametrize("where", ["run", "compensate", "undo"])
def test_b118_any_other_base_exception_is_a_failure(error: type[BaseException], where: str, recorder: Recorder) -> None:
    outcome = _throwing(error, where).run(fail_at="z")
    assert row(outcome).status == "failed"
    assert recorder.sequence()[-1] == "undo a"
    left = failure(outcome).rollback_failures
    assert [each.step for each in left] == ([] if where == "run" else ["throwing"])


@pytest.mark.parametrize("error", INTERRUPTING)
@pytest.mark.parametrize("where", ["run", "compensate", "undo"])
def test_b118_an_interruption_in_process_passes_and_leaves_an_aborted_execution(
    error: type[BaseException], where: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    from reactor_coord.models import Execution

    reactor = _throwing(error, where)
    with pytest.raises(error):
        reactor.run(fail_at="z")
    (found,) = Execution.objects.all()
    assert found.status == "aborted"
    assert found.lease_token == ""
    assert "undo a" not in recorder.sequence()
    if where == "run":  # the operator decides: here, undo
        found.undo()
        testing.drain(timeout=5)
        found.refresh_from_db()
        assert found.status == "reverted"
        assert recorder.sequence()[-1] == "undo a"


@contextmanager
def workers_handler(number: signal.Signals, error: type[BaseException]) -> Iterator[None]:
    """On this signal the code of a worker raises: the handler's frame is Celery's."""
    scope: dict[str, Any] = {"__name__": "celery.apps.worker", "error": error}
    exec("def handler(*_):\n    raise error('told to go down')", scope)
    before = signal.signal(number, scope["handler"])
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("error", [*INTERRUPTING, *IN_A_WORKER])
def test_b118_an_interruption_in_a_worker_leaves_it_to_be_taken_up_again(
    error: type[BaseException], reactor_dispatches: Any, recorder: Recorder
) -> None:
    from reactor_coord.runtime import deliver

    class Once(Step):
        def run(self) -> str:
            current().mark("run once")
            if current().count("run once") == 1:
                signal.raise_signal(signal.SIGUSR1)
            return "done"

    class Interrupted(Named):
        a = step(Work)
        once = step(Once, after=a)

    handle = Interrupted.enqueue()
    with workers_handler(signal.SIGUSR1, error), pytest.raises(error):
        deliver(str(handle.id), "testing")
    assert handle.status == "ready"
    testing.drain(timeout=5)
    assert handle.status == "completed"
    assert recorder.sequence() == ["run a", "run once", "run once"]


def test_nothing_of_a_halted_tree_is_left_running() -> None:
    class Stop(Step):
        def run(self) -> None:
            self.halt(reason="enough")

    class Inner(Named):
        stop = step(Stop)

    class Halting(Named):
        inner = compose(Inner)
        z = step(Work, after=inner)

    outcome = Halting.run()
    assert outcome.halted
    assert {run.status for run in runs(outcome).values()} & {"running", "waiting"} == set()


def test_a_results_mapping_reads_none_for_a_step_without_a_value() -> None:
    class Valueless(Named):
        a = step(Work, where=lambda name: False)

        @step(after=a)
        def b() -> None:
            return None

        c = step(Work, after=b)

    outcome = Valueless.run()
    assert outcome.results["a"] is None
    assert outcome.results["b"] is None
    assert set(outcome.results) == {"a", "b", "c"}
    from reactor_coord.runtime.outcome import Outcome

    assert set(Outcome.of_row(row(outcome)).results) == {"a", "b", "c"}


def test_nobody_swallows_a_verdict(recorder: Recorder) -> None:
    class Swallowing(Named):
        @step
        def charge(context: Any) -> str:
            try:
                context.skip(reason="mine")
            except Exception:
                """It gets nothing to swallow."""
            return "swallowed"

    outcome = Swallowing.run()
    assert told(outcome, "step_skipped") == [("step_skipped", "charge", "")]
