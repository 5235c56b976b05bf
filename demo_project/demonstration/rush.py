"""The load of the second story: orders and returns at once, one of them waiting for a person; the parts look at what it left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.demonstration.stage import PATIENCE_SECONDS
from demo_project.payments import journal
from demo_project.payments.models import Account
from demo_project.shipping.models import Bin, Booking, Order, Reservation, Sale
from demo_project.shipping.reactors import Checkout, Return
from reactor_coord.engine.states import TERMINAL, ExecutionStatus
from reactor_coord.models import Execution

if TYPE_CHECKING:
    from demo_project.demonstration.stage import Stage

ORDERS = 15
RETURNS = 45
ITEMS = 4
CUSTOMERS = 10
WAREHOUSE = "north"
LARGE = Decimal("1200.00")
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Rush:
    """What came, and what the bodies noted meanwhile."""

    orders: tuple[int, ...]
    executions: tuple[UUID, ...]
    picks: list[journal.Span]


def of(stage: Stage) -> Rush:
    """The rush of this demo; it happens when the first part asks for it."""
    if stage.rush is None:
        stage.rush = _happen(stage)
    return stage.rush


def _happen(stage: Stage) -> Rush:
    """Enqueue everything, answer the question, wait for the end, and see that all is there. Raises ClaimBroken."""
    begun, since = stage.screen.elapsed, time.time()
    skus = [f"sku-{n}-{stage.label}" for n in range(ITEMS)]
    bins = [Bin.objects.create(warehouse=WAREHOUSE, sku=sku, on_hand=ORDERS) for sku in skus]
    customers = [stage.account(f"customer-{n}", LARGE * ORDERS) for n in range(CUSTOMERS)]
    orders = [
        Order.objects.create(customer=customers[n % CUSTOMERS].pk, total=LARGE if n == 0 else 10 + n)
        for n in range(ORDERS)
    ]
    basket = [{"sku": sku, "quantity": 1} for sku in skus]
    options = Checkout.options(tags=stage.tags())
    ids = [
        options.enqueue(order_id=order.pk, customer=order.customer, basket=basket, card_token="tok_demo").id
        for order in orders
    ]
    back = [Order.objects.create(customer=customers[0].pk) for _ in range(RETURNS)]
    ids += [Return.options(tags=stage.tags()).enqueue(order_id=order.pk).id for order in back]
    stage.screen.say(f"{ORDERS} orders of {ITEMS} things and {RETURNS} returns enqueued")
    _answer(stage, orders[0], ids[0])
    _wait_for_all(stage, ids)
    stage.screen.say(f"all {len(ids)} over after {stage.screen.elapsed - begun:.1f} s")
    numbers = tuple(order.pk for order in (*orders, *back))
    _check(stage, numbers, bins, customers)
    picks = [span for span in stage.spans("pick") if span.begin >= since]
    return Rush(numbers, tuple(ids), picks)


def _answer(stage: Stage, order: Order, execution: UUID) -> None:
    """A person looks at the large order, and lets it pass."""

    def paused() -> bool | None:
        row = Execution.objects.get(pk=execution)
        claim(not row.is_terminal, f"the large order ended {row.status} without being looked at: {row.failure}")
        return row.status == ExecutionStatus.PAUSED or None

    stage.until(paused, "the question about the large order")
    Checkout.resume(f"order-{order.pk}", step="review", payload={"approved": True, "note": "a good customer"})
    stage.screen.say(f"order {order.pk} of {order.total} paused for a person, who approved it")
    stage.browse.append(("paused and answered", execution))


def _wait_for_all(stage: Stage, ids: list[UUID]) -> None:
    mine = Execution.objects.filter(pk__in=ids)
    done, moved = 0, time.monotonic()
    with stage.screen.progress("orders and returns over", len(ids)) as tell:
        while done < len(ids):
            stage.worker.check()
            over = mine.filter(status__in=TERMINAL).count()
            if over > done:
                done, moved = over, time.monotonic()
                tell(done)
            if time.monotonic() - moved > PATIENCE_SECONDS:
                left = ", ".join(
                    f"{row.label} {row.id} is {row.status}" for row in mine.exclude(status__in=TERMINAL)[:5]
                )
                raise ClaimBroken(f"nothing moved for {PATIENCE_SECONDS:g} s: {left}")
            time.sleep(LOOK_SECONDS)
    for row in mine.exclude(status=ExecutionStatus.COMPLETED)[:1]:
        raise ClaimBroken(f"{row.label} {row.id} ended {row.status}: {row.failure}")


def _check(stage: Stage, numbers: tuple[int, ...], bins: list[Bin], customers: list[Account]) -> None:
    """Each order picked, paid, shipped and counted once; each return fetched once."""
    orders = numbers[:ORDERS]
    stage.until(
        lambda: Sale.objects.filter(order_id__in=orders).count() == len(orders) or None, "the last sale's analysis"
    )
    parcels = sorted(Booking.objects.filter(order_id__in=numbers, cancelled=False).values_list("order_id", flat=True))
    claim(parcels == sorted(numbers), "there is not exactly one parcel for each order and return")
    picked = Reservation.objects.filter(bin__in=bins, released=False).count()
    claim(picked == ORDERS * ITEMS, f"{picked} things were picked instead of {ORDERS * ITEMS}")
    for shelf in bins:
        shelf.refresh_from_db()
        claim(shelf.on_hand == 0, f"{shelf} should be empty and has {shelf.on_hand}")
    paid = Decimal(0)
    for account in customers:
        account.refresh_from_db()
        claim(account.ledger_balance() == account.balance, f"the ledger of {account.number} does not add up")
        paid += LARGE * ORDERS - account.balance
    owed = sum(Order.objects.filter(pk__in=orders).values_list("total", flat=True), Decimal(0))
    claim(paid == owed, f"{paid} was paid for orders of {owed}")
    stage.screen.say(f"{ORDERS} orders paid ({owed}), {picked} things picked, {len(parcels)} parcels, none twice")
