"""The workflows: `Checkout` and `Return`, which share a courier; `MonthlyBilling` and `DailyReport`; `PostEntry`.

All five decorators are here, at a step or at a reactor.
"""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any

from django.core.mail import send_mail
from django.db.models import Sum

from demo_project.payments import journal
from demo_project.payments.reactors import Payment
from demo_project.shipping import books, courier, pricing, stock
from demo_project.shipping.models import Order, Report, Reservation, Sale
from reactor_coord import (
    Context,
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

PICKERS = 3
LARGE_ORDER = 1000


# A checkout: nesting, a map, a semaphore on the warehouse, a person's decision, work on the side.


@with_semaphore("warehouse:{warehouse}", limit=PICKERS, ttl=120)
class ReserveItem(Step):
    """A picker goes to the bin. The warehouse has few of them."""

    warehouse = Input(str)
    sku = Input(str)
    quantity = Input(int, ge=1)
    pace = Input(float, default=0.08, ge=0, le=10)

    retry = Retry(max_attempts=5, backoff="exponential", base_delay=0.5, on=(ConnectionError,))

    def run(self) -> dict[str, Any]:
        with journal.witnessed("pick", str(self.context.execution_id), 0):
            time.sleep(self.pace)
            return stock.reserve(self.warehouse, self.sku, self.quantity, key=self.context.idempotency_key)

    def undo(self, result: dict[str, Any]) -> None:
        stock.release(result)


@with_rate_limit(name="courier")
class BookCourier(Step):
    """A third party with a quota: one limit, in the settings, shared by every reactor that names it."""

    order_id = Input(int)

    retry = Retry(max_attempts=4, backoff="exponential", base_delay=2, max_delay=60, on=(courier.Unavailable,))

    def run(self) -> dict[str, Any]:
        return courier.book(self.order_id, idempotency_key=self.context.idempotency_key)

    def undo(self, result: dict[str, Any]) -> None:
        courier.cancel(result["id"])


class TrackSale(Step):
    """For the analysts. Runs beside the rest, and nobody waits for it."""

    order_id = Input(int)
    total = Input(Decimal)

    def run(self) -> None:
        Sale.objects.get_or_create(order_id=self.order_id, defaults={"total": self.total})


class Checkout(Reactor):
    """From basket to parcel. A large order waits for a person; whatever fails later undoes what was done."""

    order_id = Input(int)
    customer = Input(int)
    basket = Input(list[dict], min_length=1)  # type: ignore[type-arg]
    card_token = Input(str, redact=True)

    @step(order_id=order_id)
    def price(order_id: int) -> dict[str, Any]:
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
        where=lambda price: price["total"] >= LARGE_ORDER,
        price=price,
        after=reserved,
    )

    @step(decision=review)
    def decide(decision: dict[str, Any] | None, context: Context) -> None:
        if decision and not decision["approved"]:
            context.fail(f"refused: {decision['note']}", retryable=False)

    payment = compose(Payment, account_id=customer, amount=price["total"], card_token=card_token, after=decide)
    parcel = step(BookCourier, order_id=order_id, after=payment)
    analytics = async_step(TrackSale, order_id=order_id, total=price["total"], after=payment, detach=True)

    returns = parcel


class Return(Reactor):
    """The courier fetches something back: another reactor under the same limit."""

    order_id = Input(int)

    parcel = step(BookCourier)


# Once a month and in order: a whole reactor exclusive and deduplicated, a book that keeps its sequence.


class CollectInvoices(Step):
    """What the organisation's orders of the month come to."""

    org = Input(int)
    month = Input(dt.date)

    def run(self) -> dict[str, Any]:
        orders = Order.objects.filter(customer=self.org)
        total: Decimal | None = orders.aggregate(total=Sum("total"))["total"]
        return {"count": orders.count(), "total": (total or Decimal(0)).quantize(Decimal("0.01"))}


class SendReport(Step):
    """Tell the organisation."""

    org = Input(int)
    posted = Input(dict)

    def run(self) -> None:
        text = f"{self.posted['count']} invoices, entry {self.posted['number']}"
        send_mail("Your invoices", text, "shop@example.com", [f"org-{self.org}@example.com"])


@with_lock("billing:{org}", ttl=600)
@with_period("billing:{org}", every="month", timezone="Europe/Berlin")
class MonthlyBilling(Reactor):
    """One run at a time and one a month for each organisation: a second run halts at the door."""

    org = Input(int)
    month = Input(dt.date)

    invoices = step(CollectInvoices, org=org, month=month)

    @step(invoices=invoices, org=org)
    @with_ordered_lock("ledger:{org}", strict=True, poison_pill_timeout=300)
    def post(invoices: dict[str, Any], org: int) -> dict[str, Any]:
        return books.post_invoices(org, invoices)

    report = step(SendReport, org=org, posted=post, where=lambda posted: posted["count"] > 0)


class DailyReport(Reactor):
    """Counted at each run, written once a day: a second run skips that one step and goes on."""

    warehouse = Input(str)

    @step(warehouse=warehouse)
    def count(warehouse: str) -> int:
        return Reservation.objects.filter(bin__warehouse=warehouse, released=False).count()

    @step(warehouse=warehouse, reservations=count)
    @with_period("report:{warehouse}", every="day", timezone="Europe/Berlin")
    def write(warehouse: str, reservations: int) -> int:
        return Report.objects.create(warehouse=warehouse, reservations=reservations).pk

    @step(report=write)
    def close(report: int | None) -> str:
        return "written now" if report else "was written before"


@with_ordered_lock("book:{book}", poison_pill_timeout=30)
class Enter(Step):
    """Write the next line. Who arrives first writes first, whatever happens on the way."""

    book = Input(str)
    what = Input(str)
    pace = Input(float, default=0.0, ge=0, le=10)

    def run(self) -> int:
        with journal.witnessed("enter", str(self.context.execution_id), 0):
            return books.append(self.book, self.what, pace=self.pace)


class PostEntry(Reactor):
    """Enter one line into a book."""

    book = Input(str)
    what = Input(str)
    pace = Input(float, default=0.0, ge=0, le=10)

    enter = step(Enter)
