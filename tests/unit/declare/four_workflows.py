"""The four workflows that the authoring API is held against, with their domain left out: they must import as written."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)

bank: Any = SimpleNamespace()
stock: Any = SimpleNamespace()
mailer: Any = SimpleNamespace()
pricing: Any = SimpleNamespace()
ledger: Any = SimpleNamespace()
courier: Any = SimpleNamespace(Unavailable=type("Unavailable", (Exception,), {}))


class TrackSale(Step):
    order_id = Input(int)
    total = Input(Decimal)

    def run(self) -> Any: ...


class CollectInvoices(Step):
    org = Input(int)
    month = Input(dt.date)

    def run(self) -> Any: ...


class SendReport(Step):
    org = Input(int)
    posted = Input(dict[str, Any])

    def run(self) -> Any: ...


class Payment(Reactor):
    account_id = Input(int)
    amount = Input(Decimal, gt=0)
    card_token = Input(str, redact=True)

    @step(account_id=account_id, amount=amount, card=card_token)
    def charge(account_id: Any, amount: Any, card: Any) -> Any: ...


# 1. A transfer: two keys at once, the database in one transaction with the checkpoint, the outside world fenced.


@with_lock("acct:{source}", "acct:{target}", ttl=30, max_wait=600)
class MoveMoney(Step):
    """Debit and credit. All or nothing, and never beside another transfer of either account."""

    source = Input(int)
    target = Input(int)
    amount = Input(Decimal, gt=0, decimal_places=2)
    atomic = True

    def guard(self) -> None:
        if self.source == self.target:
            self.skip(reason="same account")

    def run(self) -> Any:
        bank.debit(self.source, self.amount, fence=self.context.fence(f"acct:{self.source}"))
        bank.credit(self.target, self.amount)
        return {"balance": bank.balance(self.source)}

    def undo(self, result: Any) -> None:
        bank.credit(self.source, self.amount)
        bank.debit(self.target, self.amount)


class Transfer(Reactor):
    source = Input(int)
    target = Input(int)
    amount = Input(Decimal, gt=0, decimal_places=2)

    move = step(MoveMoney)  # its inputs have the reactor's names: wired by name

    @step(balance=move["balance"], account=source)
    def tell(balance: Any, account: Any) -> None:
        mailer.send(account, f"Your balance is now {balance}")


# 2. A third party with a quota: one limit shared by every reactor that names it, planned instead of retried.


@with_rate_limit(name="courier")
class BookCourier(Step):
    order_id = Input(int)
    retry = Retry(max_attempts=4, backoff="exponential", base_delay=2, max_delay=60, on=(courier.Unavailable,))

    def run(self) -> Any:
        return courier.book(self.order_id, idempotency_key=self.context.idempotency_key)

    def undo(self, booking: Any) -> None:
        courier.cancel(booking["id"])


# 3. A checkout: nesting, fan-out, a semaphore on the warehouse, a person's decision, work on the side.


@with_semaphore("warehouse:{warehouse}", limit=3, ttl=120)
class ReserveItem(Step):
    warehouse = Input(str)
    sku = Input(str)
    quantity = Input(int, ge=1)
    retry = Retry(max_attempts=5, backoff="exponential", base_delay=0.5, on=(ConnectionError,))

    def run(self) -> Any:
        return stock.reserve(self.warehouse, self.sku, self.quantity)

    def undo(self, reservation: Any) -> None:
        stock.release(reservation)


class Checkout(Reactor):
    """From basket to parcel. A large order waits for a person; whatever fails later undoes what was done."""

    order_id = Input(int)
    customer = Input(int)
    basket = Input(list[dict[str, Any]], min_length=1)
    card_token = Input(str, redact=True)
    queue = "orders"

    @step(order_id=order_id)
    def price(order_id: Any) -> Any:
        return pricing.total(order_id)

    reserved = map_each(
        ReserveItem,
        over=basket,
        batch_size=50,
        warehouse="north",
        sku=element()["sku"],
        quantity=element()["quantity"],
        after=price,
    )

    review = interrupt(
        correlation_id=order_id.map("order-{}".format),
        payload={"approved": bool, "note": str},
        timeout=dt.timedelta(days=2),
        where=lambda price: price["total"] >= 1000,
        price=price,
        after=reserved,
    )

    @step(decision=review)
    def decide(decision: Any, context: Any) -> None:
        if decision and not decision["approved"]:
            context.fail(f"refused: {decision['note']}", retryable=False)

    payment = compose(Payment, account_id=customer, amount=price["total"], card_token=card_token, after=decide)
    parcel = step(BookCourier, order_id=order_id, after=payment)
    analytics = async_step(TrackSale, order_id=order_id, total=price["total"], after=payment, detach=True)

    returns = parcel


# 4. Once a month and in order: a whole reactor exclusive and deduplicated, a ledger that keeps its sequence.


@with_lock("billing:{org}", ttl=600)
@with_period("billing:{org}", every="month", timezone="Europe/Berlin")
class MonthlyBilling(Reactor):
    org = Input(int)
    month = Input(dt.date)

    invoices = step(CollectInvoices, org=org, month=month)

    @step(invoices=invoices, org=org)
    @with_ordered_lock("ledger:{org}", strict=True, poison_pill_timeout=300)
    def post(invoices: Any, org: Any) -> Any:
        return ledger.append(org, invoices)

    report = step(SendReport, org=org, posted=post, where=lambda posted: posted["count"] > 0)
