"""`mock_step` and `failing_at`: one step does something else, at one place, for the length of a block; the rest is as it was."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Reactor, Retry, async_step, compose, step, testing, with_lock
from reactor_coord.errors import DefinitionError
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.testing.conftest import Start
from tests.integration.testing.shapes import Asking, LockedWork, Order, Payment, Told, Work
from tests.live.reactors import BodyFailed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]


class Inline(Told):
    """Two steps of one class, and an inline one that reads them."""

    first = step(Work)
    second = step(Work, after=first)

    @step(first=first, second=second)
    def joined(first: str, second: str) -> str:
        return f"{first}+{second}"

    @joined.undo
    def _(result: str) -> None:
        """Nothing."""


class Outer(Told):
    """The same reactor twice."""

    left = compose(Inline)
    right = compose(Inline, after=left)

    @step(left=left, right=right)
    def both(left: str, right: str) -> list[str]:
        return [left, right]


def test_u91_one_step_of_a_class_that_stands_twice(start: Start) -> None:
    with testing.mock_step(Inline, "second", returns="mocked") as mocked:
        outcome = start(Inline)
        testing.assert_completed(outcome)
        assert outcome.execution.step_runs.get(step="joined").result == "first+mocked"
    assert [(call.path, call.attempt) for call in mocked.calls] == [("second", 1)]
    assert Inline.run().value == "first+second"


def test_u91_an_inline_step_and_its_arguments() -> None:
    with testing.mock_step(Inline, "joined", lambda step: sorted(step.arguments)) as mocked:
        assert Inline.run().value == ["first", "second"]
    assert dict(mocked.calls[0].arguments) == {"first": "first", "second": "second"}


def test_u91_nested_by_its_path_and_everywhere_by_its_reactor(start: Start) -> None:
    with testing.mock_step(Outer, "right.second", returns="mocked"):
        outcome = start(Outer)
        testing.assert_completed(outcome)
    assert outcome.execution.step_runs.get(step="both").result == ["first+second", "first+mocked"]
    with testing.mock_step(Inline, "second", returns="m") as mocked:
        start(Outer)
    assert [call.path for call in mocked.calls] == ["second", "second"]


def test_u91_in_one_element_or_in_each(start: Start) -> None:
    with testing.mock_step(Order, "lines[1].pick", returns="mocked") as one:
        testing.assert_completed(start(Order))
    assert [call.path for call in one.calls] == ["lines[1].pick"]
    with testing.mock_step(Order, "lines.pick", returns="mocked") as each:
        testing.assert_completed(start(Order))
    assert sorted(call.path for call in each.calls) == [f"lines[{index}].pick" for index in range(3)]
    with testing.mock_step(Order, "labels[2]", returns="mocked") as alone:
        testing.assert_completed(start(Order))
    assert [call.path for call in alone.calls] == ["labels[2]"]
    assert [call.arguments["number"] for call in alone.calls] == [2]


def test_u91_the_original_can_be_called() -> None:
    def loudly(step: Any, original: Any) -> str:
        return str(original()).upper()

    with testing.mock_step(Inline, "first", loudly):
        assert Inline.run().value == "FIRST+second"


def test_u91_a_replacement_fails_and_skips_like_a_body(start: Start) -> None:
    with testing.mock_step(Order, "payment.audit", lambda step: step.skip(reason="mocked")):
        testing.assert_skipped(start(Order), "payment.audit", reason="mocked")
    with testing.mock_step(Order, "ship", raises=TimeoutError("no courier")):
        outcome = start(Order)
    testing.assert_failed(outcome, "ship", TimeoutError, "no courier")
    testing.assert_rolled_back(outcome, "payment.charge", "ship")


def test_u91_it_stays_under_its_lock_and_its_retries() -> None:
    held: list[Any] = []

    def looks(step: Any) -> None:
        held.append([key for key in ("acct:1",) if testing.assert_locked(key) is None])
        if step.context.attempt < 3:
            raise ConnectionError

    with testing.mock_step(Payment, "charge", looks) as mocked:
        outcome = Payment.run(key="acct:1")
    testing.assert_retried(outcome, "charge", times=2)
    assert [call.attempt for call in mocked.calls] == [1, 2, 3]
    assert held == [["acct:1"]] * 3


def test_u91_a_unit_in_a_worker_of_its_own(reactor_dispatches: Dispatches) -> None:
    class Beside(Told):
        track = async_step(Work)
        last = step(Work, after=track)

    with testing.mock_step(Beside, "track", returns="mocked") as mocked:
        handle = Beside.enqueue()
        testing.drain()
    testing.assert_completed(handle)
    assert [call.path for call in mocked.calls] == ["track"]


def test_u91_an_undo_a_compensation_and_a_guard_too() -> None:
    with testing.failing_at(Payment, "audit", part="undo") as undo, testing.failing_at(Payment, "charge", BodyFailed):
        outcome = Payment.run(key="acct:1")
    testing.assert_rollback_failed(outcome, "audit", kind="undo", reason="raised")
    assert undo.count == 1
    with testing.mock_step(Payment, "charge", lambda step, error: None, part="compensate") as compensated:
        testing.assert_failed(Payment.run(key="acct:1", fail_at="charge"), "charge")
    assert compensated.count == 1
    with pytest.raises(DefinitionError, match=r"'audit' of Payment has no guard that could be replaced"):
        with testing.mock_step(Payment, "audit", part="guard"):
            pass


def test_u91_failing_as_often_as_it_is_told(start: Start) -> None:
    with testing.failing_at(Order, "payment.charge", ConnectionError("busy"), times=2) as failing:
        outcome = start(Order)
    testing.assert_completed(outcome)
    testing.assert_retried(outcome, "payment.charge", times=2)
    assert failing.count == 3
    with testing.failing_at(Order, "labels[1]"):
        outcome = start(Order)
    testing.assert_failed(outcome, "labels[1]", testing.ToldToFail, r"Order.labels[1] was told to fail")


def test_u91_failing_after_the_body_leaves_what_it_did() -> None:
    did: list[str] = []

    class Writing(Reactor):
        @step
        def write(context: Any) -> None:
            did.append("written")

        @write.compensate
        def _(error: BaseException) -> None:
            did.append(f"taken back after {type(error).__name__}")

    with testing.failing_at(Writing, "write", after=True):
        testing.assert_compensated(Writing.run(), "write")
    assert did == ["written", "taken back after ToldToFail"]
    with testing.failing_at(Writing, "write"):
        Writing.run()
    assert did[2:] == ["taken back after ToldToFail"]


def test_u91_a_call_by_itself_is_no_step_of_the_reactor() -> None:
    with testing.mock_step(Payment, "charge", returns="mocked"):
        assert LockedWork.call(key="acct:1") == "LockedWork"
        assert Payment.run(key="acct:1").results["charge"] == "mocked"


def test_u91_mocks_of_one_class_stand_within_each_other() -> None:
    with testing.mock_step(Inline, "first", returns="a"), testing.mock_step(Inline, "second", returns="b"):
        with testing.mock_step(Inline, "first", returns="c"):
            assert Inline.run().value == "c+b"
        assert Inline.run().value == "a+b"
    assert Inline.run().value == "first+second"
    assert "run" in vars(Work)


def test_u91_what_cannot_be_replaced_is_refused_with_what_can() -> None:
    with pytest.raises(
        DefinitionError, match=r"Order has no step 'payment\.chrage'\. Did you mean 'payment\.charge'\?"
    ):
        with testing.mock_step(Order, "payment.chrage"):
            pass
    with pytest.raises(
        DefinitionError, match=r"'payment' of Order is a compose: .*inside it: payment\.audit, payment\.charge"
    ):
        with testing.mock_step(Order, "payment"):
            pass
    with pytest.raises(
        DefinitionError, match=r"'review\.answer' of Asking is an interrupt: it has no body of its own\.$"
    ):
        with testing.failing_at(Asking, "review.answer"):
            pass
    with pytest.raises(
        DefinitionError, match=r"part='compensat'\): a step has no such part\. Did you mean 'compensate'\?"
    ):
        with testing.mock_step(Order, "ship", part="compensat"):
            pass
    with pytest.raises(TypeError, match="not both"), testing.mock_step(Order, "ship", lambda step: 1, returns=2):
        pass


def test_u91_a_subclass_is_a_reactor_of_its_own() -> None:
    class Careful(Inline):
        third = step(Work, after=Inline.joined, retry=Retry(max_attempts=2), coordination=[with_lock("x", ttl=5)])
        returns = Inline.joined

    with testing.mock_step(Careful, "first", returns="a"):
        assert Inline.run().value == "first+second"
        assert Careful.run().value == "a+second"
