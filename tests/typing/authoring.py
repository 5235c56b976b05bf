"""A reactor as an author writes it, with what their editor should make of it. Checked by mypy, never run.

Every `type: ignore` here is a mistake that must stay one: mypy reports it when it is accepted.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, assert_type

from reactor_coord import (
    Context,
    Input,
    Outcome,
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
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.declare.references import Reference


@with_lock("acct:{account_id}", ttl=dt.timedelta(minutes=1), max_wait=600)
class Charge(Step):
    """Inputs read as their types."""

    account_id = Input(int)
    amount = Input(Decimal, gt=0)
    note = Input(str, required=False)
    tags = Input(list[str], default=[])
    express = Input(bool, default=False)
    retry = Retry(max_attempts=3, on=(ConnectionError,))
    atomic = True

    def guard(self) -> None:
        if self.amount > 10_000:
            self.skip(reason="too much")

    def run(self) -> dict[str, str]:
        assert_type(self.account_id, int)
        assert_type(self.amount, Decimal)
        assert_type(self.note, str | None)
        assert_type(self.tags, list[str])
        assert_type(self.express, bool)
        assert_type(self.context.attempt, int)
        assert_type(self.context.fence("acct:1"), int)
        self.account_id.upper()  # type: ignore[attr-defined]
        return {"receipt": self.context.idempotency_key}

    def compensate(self, error: BaseException) -> None:
        self.context.logger.warning("voided", exc_info=error)

    def undo(self, result: dict[str, str]) -> None:
        result["receipt"]


class Payment(Reactor):
    """References are references while the class is being built."""

    account_id = Input(int)
    amount = Input(Decimal, gt=0)

    charge = step(Charge, coordination=[with_rate_limit("api", limit=10, period="second")])
    assert_type(charge["receipt"], Reference)
    assert_type(charge["receipt"].map(len), Reference)

    @step(receipt=charge["receipt"], account_id=account_id)
    @with_semaphore("smtp", limit=5)
    @staticmethod
    def notify(receipt: str, account_id: int, context: Context) -> str:
        context.progress(1, 2)
        if not receipt:
            context.fail("no receipt", retryable=False)
        return f"{account_id}: {receipt}"

    @notify.undo
    @staticmethod
    def _(result: str, receipt: str) -> None: ...

    @notify.compensate
    @staticmethod
    def _(error: BaseException, receipt: str) -> None: ...

    returns = charge


@with_period("orders:{order_id}", every="day", timezone="Europe/Berlin")
class Order(Reactor):
    """The other words."""

    order_id = Input(int)
    accounts = Input(list[int])

    paid = map_each(Charge, over=accounts, account_id=element(), amount=Decimal(1), batch_size=10)
    review = interrupt(
        correlation_id=order_id.map("order-{}".format),
        payload={"approved": bool},
        timeout=dt.timedelta(days=2),
        where=lambda paid: len(paid) > 3,
        paid=paid,
    )
    payment = compose(Payment, account_id=1, amount=Decimal(2), after=[paid, review])
    late = async_step(Charge, account_id=1, amount=Decimal(2), detach=True, after=payment)


def callers() -> None:
    """What runs them gives typed answers and takes typed options."""
    assert_type(Payment.run(account_id=1, amount=Decimal(1)), Outcome)
    Payment.options(tags={"customer": 5}, countdown=2).enqueue(account_id=1, amount=Decimal(1))
    assert_type(Charge.call(account_id=1, amount=Decimal(1)), Any)
    assert_type(Charge.account_id, Input[int])
    Payment.options(tag={})  # type: ignore[call-arg]
    with_semaphore("smtp")  # type: ignore[call-arg]
    Retry(max_attempts="3")  # type: ignore[arg-type]
    compose(Charge)  # type: ignore[arg-type]
