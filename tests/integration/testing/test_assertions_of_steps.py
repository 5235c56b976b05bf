"""Assertions about single steps: what holds passes, what does not is told in plain words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reactor_coord import Retry, compose, step, testing
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.testing.conftest import Start
from tests.integration.testing.shapes import Beside, Deciding, LockedWork, Order, Payment, Told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]


def test_u91_ran_names_children_and_elements_by_their_paths(start: Start) -> None:
    order = start(Order)
    testing.assert_completed(order)
    testing.assert_ran(order, "payment.audit", "payment.charge", "lines[0].pick", "lines[0].pack", "labels[0]", "ship")
    testing.assert_ran(order, "lines[2].pack", "labels", "ship")
    testing.assert_ran(order, "lines.pack", after="payment.charge")
    with pytest.raises(AssertionError, match=r"expected ship then labels\[1\]; ran, in order: payment\.audit, "):
        testing.assert_ran(order, "ship", "labels[1]")


def test_u91_not_ran_is_about_bodies_that_begin(start: Start) -> None:
    order = start(Order, fail_at="pack[1]")
    testing.assert_not_ran(order, "labels", "ship", "unwanted")
    with pytest.raises(AssertionError, match=r"expected lines\[1\]\.pack not to have run; it did: lines\[1\]\.pack \("):
        testing.assert_not_ran(order, "lines[1].pack")
    for inside in ("payment", "lines", "lines[0]"):
        with pytest.raises(AssertionError, match=rf"expected {re.escape(inside)} not to have run; it did: "):
            testing.assert_not_ran(order, inside)


@pytest.mark.parametrize(
    "check", [testing.assert_ran, testing.assert_not_ran, testing.assert_undone, testing.assert_skipped]
)
def test_u91_a_name_that_no_step_has_fails_whatever_is_asserted(check: Any) -> None:
    order = Order.run()
    with pytest.raises(AssertionError, match=r"Order has no step 'shipp'\. Did you mean 'ship'\?"):
        check(order, "shipp")
    with pytest.raises(AssertionError, match=r"no step 'payment\.chrage'\. Did you mean 'payment\.charge'\?"):
        check(order, "payment.chrage")


def test_u91_retried_counts_the_attempts_but_the_first(start: Start) -> None:
    order = start(Order, fail_at="charge", fails=2)
    testing.assert_completed(order)
    testing.assert_retried(order, "payment.charge")
    testing.assert_retried(order, "charge", times=2)
    testing.assert_retried(order, "ship", times=0)
    with pytest.raises(
        AssertionError, match=r"charge to be tried again 1 times; it was 2 times\..*after attempt 1, .*attempt 2"
    ):
        testing.assert_retried(order, "charge", times=1)
    with pytest.raises(AssertionError, match=r"expected ship to be tried again; it was 0 times"):
        testing.assert_retried(order, "ship")


def test_u91_skipped_with_its_reason(start: Start) -> None:
    order = start(Order)
    testing.assert_skipped(order, "unwanted")
    testing.assert_skipped(order, "unwanted", reason="where")
    testing.assert_skipped(start(Deciding, verdict="skip"), "decide", reason="for today")
    with pytest.raises(
        AssertionError, match=r"unwanted to be skipped because of 'period'; skipped were: unwanted \(where\)"
    ):
        testing.assert_skipped(order, "unwanted", reason="period")
    with pytest.raises(AssertionError, match=r"expected ship to be skipped; .*Steps: .*ship succeeded"):
        testing.assert_skipped(order, "ship")


def test_u91_parked_at_which_step_for_which_key(reactor_dispatches: Dispatches) -> None:
    with testing.hold("acct:1"):
        order = Order.enqueue()
        testing.drain()
        testing.assert_parked(order)
        testing.assert_parked(order, "payment.charge", key="acct:1", primitive="lock")
        testing.assert_contended(order, "payment.charge", key="acct:1")
        found = r"parked are: payment\.charge for lock 'acct:1', held by testing\.hold of owner testing-"
        with pytest.raises(AssertionError, match=rf"expected ship to be parked; the execution is parked, {found}"):
            testing.assert_parked(order, "ship")
        with pytest.raises(AssertionError, match=r"charge to be parked for 'acct:2'"):
            testing.assert_parked(order, "charge", key="acct:2")
    testing.drain()
    with pytest.raises(AssertionError, match=r"expected it to be parked; the execution is completed, parked are: none"):
        testing.assert_parked(order)


def test_u91_a_unit_that_is_parked_counts_by_its_step(reactor_dispatches: Dispatches) -> None:
    with testing.hold("acct:1"):
        handle = Beside.enqueue()
        testing.drain()
        testing.assert_parked(handle, "track", key="acct:1")
        testing.assert_ran(handle, "meanwhile")
        testing.assert_not_ran(handle, "track", "last")
    testing.drain()
    testing.assert_ran(handle, "meanwhile", "track", "last")


def test_u91_a_retry_parks_too_at_any_depth(reactor_dispatches: Dispatches) -> None:
    class Patient(Payment):
        charge = step(LockedWork, after=Payment.audit, retry=Retry(max_attempts=2, backoff="fixed", base_delay=1))

    class Outer(Told):
        payment = compose(Patient, key="acct:1")

    handle = Outer.enqueue(fail_at="charge", fails=1)
    testing.drain()
    testing.assert_parked(handle, "payment.charge")
    with pytest.raises(
        AssertionError, match=r"for 'acct:1'; the execution is parked, parked are: payment\.charge for retry"
    ):
        testing.assert_parked(handle, "payment.charge", key="acct:1")
    testing.drain(timeout=5)
    testing.assert_completed(handle)
    testing.assert_retried(handle, "payment.charge", times=1)


def test_u91_undone_and_compensated_in_their_order(start: Start) -> None:
    order = start(Order, fail_at="ship")
    testing.assert_compensated(order, "ship")
    testing.assert_undone(
        order,
        "labels[2]",
        "labels[1]",
        "labels[0]",
        "lines[2].pack",
        "lines[0].pick",
        "payment.charge",
        "payment.audit",
    )
    with pytest.raises(
        AssertionError, match=r"expected payment\.audit then payment\.charge; was undone, in order: .*Steps: "
    ):
        testing.assert_undone(order, "payment.audit", "payment.charge")
    with pytest.raises(AssertionError, match=r"expected audit; was compensated, in order: ship"):
        testing.assert_compensated(order, "audit")


def test_u91_a_failure_points_to_the_line_of_the_test() -> None:
    order = Order.run()
    with pytest.raises(AssertionError) as caught:
        testing.assert_skipped(order, "ship")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert [entry.name for entry in caught.traceback][-1:] == ["checked"]
