"""The demo's reckoning notices a wrong ledger: a check that cannot fail proves nothing."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from demo_project.demonstration import reckoning, sabotage
from demo_project.demonstration.claims import ClaimBroken
from demo_project.payments import ledger
from demo_project.payments.models import Account
from demo_project.payments.payment_file import PaymentRow
from reactor_coord.models import Execution
from reactor_coord.testing import ExecutionFactory

pytestmark = pytest.mark.django_db

ROWS = [
    PaymentRow(2, "P1", "A", Decimal("10.00")),
    PaymentRow(3, "P2", "A", Decimal("2.50"), "notify"),
    PaymentRow(4, "P3", "A", Decimal("1.25"), "charge"),
    PaymentRow(5, "P4", "A", Decimal("7.00"), "audit"),
    PaymentRow(6, "P5", "B", Decimal("10.00")),
]


@pytest.fixture
def accounts() -> dict[str, Account]:
    """As they must be when ROWS were paid."""
    found = {name: ledger.open_account(name, Decimal("100.00")) for name in ("A", "B")}
    for row in ROWS:
        if row.fail_at != "audit":
            ledger.charge(found[row.account].pk, row.amount, key=row.reference)
        if row.fail_at in ("charge", "notify"):
            ledger.refund(row.reference)
    return found


def _executions() -> dict[str, UUID]:
    return {row.reference: ExecutionFactory.create(failed=bool(row.fail_at)).pk for row in ROWS}


def test_what_is_right_is_said_to_be(accounts: dict[str, Account]) -> None:
    reckoning.check_ends(ROWS, _executions())
    lines = reckoning.check_money(ROWS, accounts)
    assert [line.split() for line in lines] == [
        ["A", "100.00", "-", "10.00", "=", "90.00", "ledger", "90.00", "right"],
        ["B", "100.00", "-", "10.00", "=", "90.00", "ledger", "90.00", "right"],
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("missing", "is missing from the ledger"), ("twice", "once too often"), ("balance", "its ledger adds up to")],
)
def test_every_sabotage_is_noticed(
    accounts: dict[str, Account], monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    monkeypatch.setenv("DEMO_SABOTAGE", kind)
    sabotage.accounts(accounts.values())
    with pytest.raises(ClaimBroken, match=said):
        reckoning.check_money(ROWS, accounts)


def test_money_that_the_file_does_not_know_is_noticed(accounts: dict[str, Account]) -> None:
    with pytest.raises(ClaimBroken, match="once too often"):
        reckoning.check_money(ROWS[1:], accounts)


def test_a_payment_that_ended_otherwise_than_its_line_says_is_noticed() -> None:
    ids = _executions()
    Execution.objects.filter(pk=ids["P1"]).update(status="failed")
    with pytest.raises(ClaimBroken, match=r"P1 \(line 2\) is failed instead of completed"):
        reckoning.check_ends(ROWS, ids)


def test_a_lost_payment_and_an_incomplete_rollback_are_noticed() -> None:
    ids = _executions()
    Execution.objects.filter(pk=ids["P5"]).delete()
    with pytest.raises(ClaimBroken, match=r"P5.* has no execution"):
        reckoning.check_ends(ROWS, ids)
    Execution.objects.filter(pk=ids["P2"]).update(failure={"rollback_failures": [{"step": "charge"}]})
    with pytest.raises(ClaimBroken, match=r"P2.* not rolled back completely"):
        reckoning.check_ends(ROWS, ids)
