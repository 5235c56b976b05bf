"""Assertions about how an execution ended: what holds passes, what does not is told in plain words."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from reactor_coord import Reactor, step, testing, with_lock, with_period
from reactor_coord.errors import DeadlockDetected, InputValidationError, LockContended
from reactor_coord.operations import verbs
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.runtime.support import at_once
from tests.integration.testing.conftest import Start
from tests.integration.testing.shapes import Asking, Beside, Deciding, Order, Payment, Strict

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]


def test_u91_completed_says_where_it_failed_instead(start: Start) -> None:
    testing.assert_completed(start(Order))
    failed = start(Order, fail_at="audit")
    with pytest.raises(
        AssertionError, match=r"to be completed; it failed at Payment\.audit: BodyFailed: audit was told to"
    ):
        testing.assert_completed(failed)


def test_u91_failed_at_which_step_with_which_error(start: Start) -> None:
    failed = start(Order, fail_at="pack[1]")
    testing.assert_failed(failed)
    testing.assert_failed(failed, "lines[1].pack", "BodyFailed", "told to fail")
    testing.assert_failed(failed, "pack")
    with pytest.raises(
        AssertionError, match=r"to fail at ship with LockContended; it failed at Line\.pack: BodyFailed: "
    ):
        testing.assert_failed(failed, "ship", LockContended)
    with pytest.raises(AssertionError, match=r"to fail saying 'no such account'; it failed at"):
        testing.assert_failed(failed, message="no such account")
    with pytest.raises(AssertionError, match=r"expected it to be failed; it is completed"):
        testing.assert_failed(start(Order))


def test_u91_failed_of_the_reactor_itself() -> None:
    @with_lock("acct:9", ttl=5)
    class Whole(Payment):
        pass

    with testing.hold("acct:9"):
        outcome = Whole.run(key="k")
    testing.assert_failed(outcome, "", LockContended)
    with pytest.raises(AssertionError, match=r"to fail at audit; it failed at Whole: LockContended"):
        testing.assert_failed(outcome, "audit")


def test_u91_halted_by_which_step_and_why(start: Start) -> None:
    halted = start(Deciding, verdict="halt")
    testing.assert_halted(halted, "decide", reason="enough")
    with pytest.raises(AssertionError, match=r"halted at behind; it was at decide"):
        testing.assert_halted(halted, "behind")
    with pytest.raises(AssertionError, match=r"halted because of 'too late'; it was: enough for today"):
        testing.assert_halted(halted, reason="too late")
    with pytest.raises(AssertionError, match=r"expected it to be halted; it is completed"):
        testing.assert_halted(start(Deciding, verdict="skip"))


def test_u91_halted_at_the_reactors_own_door() -> None:
    @with_period("whole", every="month")
    class Monthly(Reactor):
        @step
        def work() -> None:
            """Nothing."""

    testing.assert_completed(Monthly.run())
    again = Monthly.run()
    testing.assert_halted(again, "", reason="period")
    with pytest.raises(AssertionError, match=r"halted at work; it was at none"):
        testing.assert_halted(again, "work")


def test_u91_paused_at_which_question(start: Start) -> None:
    asking = start(Asking, key="order-7")
    testing.assert_paused(asking, "review.answer", correlation_id="order-7")
    with pytest.raises(
        AssertionError,
        match=r"answered by 'order-8'; it is paused\. Paused are: review\.answer, to be answered by 'order-7'",
    ):
        testing.assert_paused(asking, correlation_id="order-8")
    with pytest.raises(AssertionError, match=r"expected it to be paused; it is completed\. Paused are: none"):
        testing.assert_paused(start(Order))


def test_u91_cancelled_with_its_reason(reactor_dispatches: Dispatches) -> None:
    with testing.hold("acct:1"):
        handle = Order.enqueue()
        testing.drain()
        handle.cancel("the customer called")
        testing.drain()
    testing.assert_cancelled(handle, reason="customer")
    testing.assert_rolled_back(handle, "payment.audit")
    with pytest.raises(AssertionError, match=r"cancelled because of 'fraud'; it was: the customer called"):
        testing.assert_cancelled(handle, reason="fraud")


def test_u119_reverted_with_its_reason(start: Start) -> None:
    order = start(Order)
    verbs.undo(order.execution, reason="the customer called")
    testing.drain()
    testing.assert_reverted(order, reason="customer")
    testing.assert_rolled_back(order, "payment.charge", "ship")
    with pytest.raises(AssertionError, match=r"reverted because of 'fraud'; it was: the customer called"):
        testing.assert_reverted(order, reason="fraud")
    with pytest.raises(AssertionError, match=r"expected it to be reverted; it failed at"):
        testing.assert_reverted(start(Order, fail_at="ship"))


def test_u91_rolled_back_reads_children_and_elements(start: Start) -> None:
    order = start(Order, fail_at="ship")
    testing.assert_rolled_back(order, "payment.charge", "lines[1].pick", "labels[2]", "ship")
    with pytest.raises(AssertionError, match=r"expected unwanted to be undone or compensated; step runs: "):
        testing.assert_rolled_back(order, "unwanted")
    with pytest.raises(AssertionError, match=r"expected a rolled back execution; it is completed"):
        testing.assert_rolled_back(start(Order))


def test_u91_a_cleanup_that_failed_with_its_reason(start: Start) -> None:
    order = start(Order, fail_at="ship", undo_fail_at="pick[1]")
    testing.assert_rollback_failed(order, "lines[1].pick")
    testing.assert_rollback_failed(order, "pick", kind="undo", reason="raised")
    found = r"undo of lines\[1\]\.pick \(raised: BodyFailed: the cleanup of pick was told to fail\)"
    with pytest.raises(AssertionError, match=rf"the rollback is incomplete: {found}"):
        testing.assert_rolled_back(order)
    with pytest.raises(
        AssertionError, match=rf"the compensate of pick to be left undone; left undone are: {found}\. The ex"
    ):
        testing.assert_rollback_failed(order, "pick", kind="compensate")
    with pytest.raises(
        AssertionError, match=r"cleanup of ship to be left undone as raised; .*The execution failed at Order\.ship"
    ):
        testing.assert_rollback_failed(order, "ship", reason="raised")


def test_u91_a_cleanup_without_its_key_names_the_key() -> None:
    holds: list[Any] = []

    class Grabbing(Payment):
        @step(key=Payment.key, after=Payment.charge)
        def grab(key: str) -> None:
            context = testing.hold(key)
            holds.append((context, context.__enter__()))
            raise ValueError("now")

    class Impatient(Grabbing):
        charge = step(
            Payment.definition.steps["charge"].step_class,  # type: ignore[arg-type]
            coordination=[with_lock("{key}", ttl=5, rollback_wait=0.2)],
            after=Payment.audit,
        )

    outcome = Impatient.run(key="acct:1")
    holds[0][0].__exit__(None, None, None)
    testing.assert_rollback_failed(outcome, "charge", kind="undo", reason="coordination_unavailable", key="acct:1")
    with pytest.raises(
        AssertionError, match=r"for the key 'acct:2'; left undone are: undo of charge \(coordination_unav"
    ):
        testing.assert_rollback_failed(outcome, "charge", key="acct:2")


def test_u91_invalid_inputs_by_field(start: Start) -> None:
    wrong = start(Strict, amount=0, card="x")
    testing.assert_invalid(wrong)
    testing.assert_invalid(wrong, "card", "amount")
    with pytest.raises(
        AssertionError, match=r"amount to be invalid; it said: Invalid input for Charge: amount: .*card: "
    ):
        testing.assert_invalid(wrong, "amount")
    with pytest.raises(AssertionError, match=r"fail for invalid inputs; it failed at Order\.ship: BodyFailed"):
        testing.assert_invalid(start(Order, fail_at="ship"))
    with pytest.raises(InputValidationError) as caught:
        Strict.run(amount="many", card="4711")
    testing.assert_invalid(caught.value, "amount")
    with pytest.raises(AssertionError, match=r"expected card to be invalid; it said: .*amount"):
        testing.assert_invalid(caught.value, "card")


def _crossing(first: str, second: str, met: threading.Barrier) -> type[Reactor]:
    @with_lock(first, ttl=5, wait=5)
    class Crossing(Reactor):
        @step
        def meet() -> None:
            met.wait(10)

        @step(after=meet)
        @with_lock(second, ttl=5, wait=5)
        def inner() -> None:
            """Nothing."""

    return Crossing


def test_u91_a_deadlock_with_its_keys_and_its_victim() -> None:
    met = threading.Barrier(2)
    outcomes = at_once(*[partial(_crossing(*keys, met).run) for keys in (("a", "b"), ("b", "a"))])
    (victim,) = [outcome for outcome in outcomes if outcome.failed]
    (other,) = [outcome for outcome in outcomes if outcome.succeeded]
    testing.assert_failed(victim, "inner", DeadlockDetected)
    testing.assert_deadlock(victim, "a", "b", failed=True)
    with pytest.raises(AssertionError, match=r"over 'c'; it was: .*waits for lock '[ab]', held by "):
        testing.assert_deadlock(victim, "c")
    with pytest.raises(AssertionError, match=r"to be one that goes on; it failed at Crossing\.inner: DeadlockDetected"):
        testing.assert_deadlock(victim, failed=False)
    testing.assert_deadlock(other, failed=False)


def test_u91_no_deadlock_is_said_so() -> None:
    with pytest.raises(AssertionError, match=r"part of a deadlock; none was found\. The execution is completed"):
        testing.assert_deadlock(Payment.run(key="acct:1"))


def test_u91_a_unit_is_undone_with_its_parent(reactor_dispatches: Dispatches) -> None:
    handle = Beside.enqueue(fail_at="last")
    testing.drain()
    testing.assert_rolled_back(handle, "track", "meanwhile", "last")
