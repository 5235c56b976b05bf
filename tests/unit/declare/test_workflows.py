"""The four workflows compile to what their authors meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactor_coord import Reactor
from reactor_coord.declare.payload import Payload
from tests.unit.declare.four_workflows import Checkout, MonthlyBilling, MoveMoney, Transfer


def shape(reactor: type[Reactor]) -> Mapping[str, Any]:
    return {name: (step.kind, set(step.depends_on)) for name, step in reactor.definition.steps.items()}


def test_a_transfer_is_wired_by_name() -> None:
    assert shape(Transfer) == {"move": ("step", set()), "tell": ("step", {"move"})}
    move = Transfer.definition.step("move")
    assert {name: ref.inputs() for name, ref in move.arguments.items()} == {
        "source": {"source"},
        "target": {"target"},
        "amount": {"amount"},
    }
    assert move.step_class is MoveMoney
    assert MoveMoney.atomic
    keys = [key.compute({"source": 1, "target": 2}) for key in move.coordination["lock"].keys]
    assert keys == ["acct:1", "acct:2"]


def test_a_checkout_has_every_kind_of_step() -> None:
    assert shape(Checkout) == {
        "price": ("step", set()),
        "reserved": ("map", {"price"}),
        "review": ("interrupt", {"price", "reserved"}),
        "decide": ("step", {"review"}),
        "payment": ("compose", {"decide", "price"}),
        "parcel": ("step", {"payment"}),
        "analytics": ("async_step", {"price", "payment"}),
    }
    definition = Checkout.definition
    assert definition.queue == "orders"
    assert definition.returns is not None
    assert definition.returns.steps() == {"parcel"}
    assert definition.doc.startswith("From basket to parcel.")
    assert definition.step("payment").redacted == {"card_token"}
    assert definition.step("parcel").retry is not None
    review = definition.step("review")
    assert review.where is not None
    assert review.where_names == {"price"}
    assert review.where(price={"total": 2000})
    assert review.options["timeout"] == 172800.0
    payload = review.options["payload"]
    assert isinstance(payload, Payload)
    assert payload.validate({"approved": "true", "note": ""}) == {"approved": True, "note": ""}
    assert definition.step("analytics").options == {"detach": True, "fails_parent": True}
    reserved = definition.step("reserved")
    assert reserved.options["batch_size"] == 50
    assert list(reserved.coordination) == ["semaphore"]


def test_a_billing_is_coordinated_at_both_levels() -> None:
    assert list(MonthlyBilling.coordination) == ["period", "lock"]
    assert list(MonthlyBilling.definition.step("post").coordination) == ["ordered_lock"]
    assert MonthlyBilling.definition.step("report").where_names == {"posted"}
