"""The workflows of the design's examples, with domain code, tested with what a user has: in process and by a real worker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command

from demo_project.payments import ledger
from demo_project.payments.models import Account
from demo_project.shipping import books, courier
from demo_project.shipping.models import Bin, Booking, Entry, Order, Reservation, Sale
from demo_project.shipping.reactors import BookCourier, Checkout, MonthlyBilling, PostEntry, ReserveItem, Return
from reactor_coord import ExecutionHandle
from reactor_coord.errors import ExecutionConflict, InputValidationError, RateLimitExceeded
from reactor_coord.models import Execution
from reactor_coord.testing import (
    LiveWorker,
    assert_contended,
    assert_ran,
    assert_rolled_back,
    bare,
    drain,
    hold,
)
from reactor_coord.testing.dispatches import Dispatches

pytestmark = pytest.mark.django_db(transaction=True)

BASKET = [{"sku": "A", "quantity": 2}, {"sku": "B", "quantity": 1}]
MONTH = dt.date(2026, 11, 1)


@pytest.fixture
def customer() -> Account:
    """With enough for a large order."""
    return ledger.open_account("customer", Decimal("5000.00"))


@pytest.fixture(autouse=True)
def _stocked() -> None:
    for sku in ("A", "B"):
        Bin.objects.create(warehouse="north", sku=sku, on_hand=10)


def _order(customer: Account, total: str) -> Order:
    return Order.objects.create(customer=customer.pk, total=Decimal(total))


def _inputs(order: Order) -> dict[str, Any]:
    return {"order_id": order.pk, "customer": order.customer, "basket": BASKET, "card_token": "tok_secret"}


def _on_hand() -> list[int]:
    return list(Bin.objects.order_by("sku").values_list("on_hand", flat=True))


def _balance(customer: Account) -> Decimal:
    customer.refresh_from_db()
    assert customer.ledger_balance() == customer.balance
    return customer.balance


# ---- checkout


def test_a_small_order_goes_through_without_anybody_looking(customer: Account, reactor_dispatches: Dispatches) -> None:
    order = _order(customer, "80.00")
    handle = Checkout.enqueue(**_inputs(order))
    drain(timeout=5)
    assert handle.status == "completed", Execution.objects.get(pk=handle.id).failure
    assert_ran(handle, "price", "decide", "payment", "parcel")
    assert _on_hand() == [8, 9]
    assert _balance(customer) == Decimal("4920.00")
    assert Booking.objects.get().order_id == order.pk
    assert Sale.objects.get().total == Decimal("80.00")


def test_the_card_is_shown_to_nobody(
    customer: Account, reactor_dispatches: Dispatches, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = Checkout.enqueue(**_inputs(_order(customer, "80.00")))
    drain(timeout=5)
    assert handle.status == "completed"
    call_command("executions", str(handle.id))
    shown = capsys.readouterr().out
    assert "Checkout" in shown
    assert "tok_secret" not in shown


def test_a_large_order_waits_for_a_person_who_approves_it(customer: Account, reactor_dispatches: Dispatches) -> None:
    order = _order(customer, "1200.00")
    handle = _paused(order)
    assert _balance(customer) == Decimal("5000.00")
    answer = {"approved": True, "note": ""}
    Checkout.resume(f"order-{order.pk}", step="review", payload=answer)
    drain(timeout=5)
    assert handle.status == "completed"
    assert _balance(customer) == Decimal("3800.00")
    with pytest.raises(ExecutionConflict):
        Checkout.resume(f"order-{order.pk}", step="review", payload=answer)


def test_a_large_order_that_is_refused_puts_everything_back(customer: Account, reactor_dispatches: Dispatches) -> None:
    order = _order(customer, "1200.00")
    handle = _paused(order)
    assert _on_hand() == [8, 9]
    Checkout.resume(f"order-{order.pk}", step="review", payload={"approved": False, "note": "too good to be true"})
    drain(timeout=5)
    assert handle.status == "failed"
    failure = handle.wait(timeout=1).failure
    assert failure is not None
    assert (failure.step, failure.message) == ("decide", "refused: too good to be true")
    assert failure.rollback_failures == ()
    assert _on_hand() == [10, 10]
    assert _balance(customer) == Decimal("5000.00")
    assert not Booking.objects.exists()


def test_an_answer_that_is_none_is_refused_and_changes_nothing(
    customer: Account, reactor_dispatches: Dispatches
) -> None:
    order = _order(customer, "1200.00")
    handle = _paused(order)
    with pytest.raises(InputValidationError, match="approved"):
        Checkout.resume(f"order-{order.pk}", step="review", payload={"approved": "perhaps", "note": ""})
    assert handle.status == "paused"


def test_an_order_nobody_can_pay_puts_its_things_back(reactor_dispatches: Dispatches) -> None:
    poor = ledger.open_account("poor", Decimal("1.00"))
    handle = Checkout.enqueue(**_inputs(_order(poor, "80.00")))
    drain(timeout=5)
    assert handle.status == "failed"
    assert _on_hand() == [10, 10]
    assert not Reservation.objects.filter(released=False).exists()
    assert not Booking.objects.exists()


def test_pickers_wait_for_a_place_in_the_warehouse(customer: Account, reactor_dispatches: Dispatches) -> None:
    with (
        hold("warehouse:north", "semaphore", limit=3),
        hold("warehouse:north", "semaphore", limit=3),
        hold("warehouse:north", "semaphore", limit=3),
    ):
        handle = Checkout.enqueue(**_inputs(_order(customer, "80.00")))
        drain()
        assert handle.status == "parked"
        elements = list(Execution.objects.filter(parent=handle.id))
        assert [element.status for element in elements] == ["parked", "parked"]
        assert_contended(elements[0], "reserved", key="warehouse:north", primitive="semaphore")
    drain(timeout=5)
    assert handle.status == "completed"


def _paused(order: Order) -> ExecutionHandle:
    handle = Checkout.enqueue(**_inputs(order))
    drain(timeout=5)
    assert handle.status == "paused", Execution.objects.get(pk=handle.id).failure
    return handle


# ---- the courier


def test_the_limit_is_shared_by_all_who_name_it(customer: Account) -> None:
    for number in range(5):
        assert Return.run(order_id=number).succeeded
    with pytest.raises(RateLimitExceeded) as caught:
        BookCourier.call(order_id=6)
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 1


def test_a_booking_is_made_once_and_can_be_called_off() -> None:
    step = bare(BookCourier, order_id=1)
    assert step.run() == step.run()
    step.undo(step.run())
    assert [booking.cancelled for booking in Booking.objects.all()] == [True]


def test_the_courier_turns_away_whoever_comes_too_often(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "courier.jsonl"
    monkeypatch.setenv("DEMO_COURIER", str(path))
    monkeypatch.setattr(courier, "TAKES_SECONDS", 0)
    monkeypatch.setattr(courier, "QUOTA_PER_SECOND", 3)
    for number in range(3):
        courier.book(number, idempotency_key=f"key-{number}")
    with pytest.raises(courier.TooMany):
        courier.book(3, idempotency_key="key-3")
    seen = courier.visits(path)
    assert [visit.taken for visit in seen] == [True, True, True, False]
    assert courier.busiest_second(seen) == 4


def test_a_reservation_is_made_once_and_put_back_once() -> None:
    step = bare(ReserveItem, warehouse="north", sku="A", quantity=3, pace=0)
    assert step.run() == step.run()
    assert _on_hand() == [7, 10]
    for _ in range(2):
        step.undo(step.run())
    assert _on_hand() == [10, 10]


# ---- billing


def test_a_month_is_billed_once_and_the_second_run_halts(customer: Account) -> None:
    _order(customer, "80.00")
    first, second = (MonthlyBilling.run(org=customer.pk, month=MONTH) for _ in range(2))
    assert first.succeeded
    assert first.results["post"] == {"count": 1, "number": 1}
    assert second.halted
    assert second.execution.reason == "period"
    assert Entry.objects.get(book=f"org-{customer.pk}").what == "1 invoices, 80.00"
    assert len(mail.outbox) == 1


def test_an_organisation_without_invoices_gets_no_report(customer: Account) -> None:
    assert MonthlyBilling.run(org=customer.pk, month=MONTH).succeeded
    assert mail.outbox == []


def test_a_billing_that_fails_leaves_its_month_free(customer: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(books, "append", None)
        outcome = MonthlyBilling.run(org=customer.pk, month=MONTH)
        assert_rolled_back(outcome)
    assert MonthlyBilling.run(org=customer.pk, month=MONTH).succeeded


def test_two_billings_of_one_organisation_wait_for_each_other(
    customer: Account, reactor_dispatches: Dispatches
) -> None:
    handle = MonthlyBilling.enqueue(org=customer.pk, month=MONTH)
    with hold(f"billing:{customer.pk}"):
        drain()
        assert_contended(handle, "", key=f"billing:{customer.pk}")
    drain()
    assert handle.status == "completed"


# ---- by a real worker


@pytest.mark.live
def test_checkout_billing_and_book_run_in_a_worker(customer: Account, live_worker: Callable[..., LiveWorker]) -> None:
    live_worker(concurrency=2)
    orders = [_order(customer, total) for total in ("80.00", "1200.00")]
    small, large = (Checkout.enqueue(**_inputs(order)) for order in orders)
    billing = MonthlyBilling.enqueue(org=customer.pk, month=MONTH)
    entries = [PostEntry.enqueue(book="day", what=what) for what in "abc"]
    assert small.wait(timeout=60).succeeded
    assert large.wait(timeout=60).paused
    Checkout.resume(f"order-{orders[1].pk}", step="review", payload={"approved": True, "note": "fine"})
    for handle in (large, billing, *entries):
        outcome = handle.wait(timeout=60)
        assert outcome.succeeded, outcome.failure
    assert _on_hand() == [6, 8]
    assert _balance(customer) == Decimal("3720.00")
    numbers = Entry.objects.filter(book="day").order_by("pk").values_list("number", flat=True)
    assert list(numbers) == [1, 2, 3]
