"""The first of the design's four workflows, as its author wrote it: two accounts at once, the money fenced."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.core import mail

from demo_project.payments import bank
from demo_project.payments.models import Account, LedgerEntry
from demo_project.payments.reactors import Transfer
from reactor_coord import Reactor, step, testing
from tests.integration.runtime.support import at_once, failure, runs, told

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def accounts() -> list[Account]:
    """Two accounts with a hundred each."""
    found = []
    for number in ("one", "two"):
        account = Account.objects.create(number=number, balance=Decimal("100.00"))
        LedgerEntry.objects.create(account=account, amount=Decimal("100.00"), kind="opening", key=f"opening {number}")
        found.append(account)
    return found


def _balances() -> list[Decimal]:
    accounts = list(Account.objects.order_by("number"))
    assert [account.ledger_balance() for account in accounts] == [account.balance for account in accounts]
    return [account.balance for account in accounts]


def _transfer(source: Account, target: Account, amount: str = "10.00", **more: Any) -> dict[str, Any]:
    return {"source": source.pk, "target": target.pk, "amount": Decimal(amount), **more}


def test_transfer_moves_money_and_tells(accounts: list[Account]) -> None:
    one, two = accounts
    outcome = Transfer.run(**_transfer(one, two))
    assert outcome.succeeded, outcome.failure
    assert _balances() == [Decimal("90.00"), Decimal("110.00")]
    assert outcome.results["move"] == {"balance": Decimal("90.00")}
    assert [message.body for message in mail.outbox] == ["Your balance is now 90.00"]
    keys = sorted([f"acct:{one.pk}", f"acct:{two.pk}"])
    assert told(outcome, "acquired") == [("acquired", "move", key) for key in keys]
    one.refresh_from_db()
    assert one.fence > 0


def test_transfer_to_oneself_is_skipped_and_takes_nothing(accounts: list[Account]) -> None:
    outcome = Transfer.run(**_transfer(accounts[0], accounts[0]))
    assert outcome.succeeded, outcome.failure
    assert runs(outcome)["move"].reason == "same account"
    assert told(outcome, "acquired") == []
    assert _balances() == [Decimal("100.00"), Decimal("100.00")]


def test_transfers_both_ways_at_once_lose_no_cent(accounts: list[Account], reactor_dispatches: Any) -> None:
    one, two = accounts

    handles = [Transfer.enqueue(**_transfer(*pair)) for pair in [(one, two), (two, one)] * 5]
    from reactor_coord.runtime import deliver

    at_once(*[partial(deliver, str(handle.id), f"worker {number}") for number, handle in enumerate(handles)])
    testing.drain(timeout=20)
    assert {handle.status for handle in handles} == {"completed"}
    assert _balances() == [Decimal("100.00"), Decimal("100.00")]
    assert LedgerEntry.objects.count() == 2 + 20


def test_a_transfer_whose_letter_fails_is_undone_under_both_locks(accounts: list[Account]) -> None:
    one, two = accounts

    class Failing(Transfer):
        @step(after=Transfer.tell)
        def audit() -> None:
            raise ConnectionError("no auditor")

    outcome = Failing.run(**_transfer(one, two))
    assert failure(outcome).step == "audit"
    assert _balances() == [Decimal("100.00"), Decimal("100.00")]
    assert [row[0] for row in told(outcome, "acquired", "undone", "released")] == [
        "acquired", "acquired", "released", "released", "acquired", "acquired", "undone", "released", "released"
    ]  # fmt: skip


def test_money_that_has_seen_a_later_token_refuses(accounts: list[Account]) -> None:
    one, two = accounts
    Account.objects.filter(pk=one.pk).update(fence=2**60)
    outcome = Transfer.run(**_transfer(one, two))
    assert failure(outcome).error_type == bank.StaleFence.__name__
    assert _balances() == [Decimal("100.00"), Decimal("100.00")]


def test_bad_amounts_are_refused_before_anything(accounts: list[Account]) -> None:
    from reactor_coord import InputValidationError

    one, two = accounts
    for amount in ("0", "-1", "1.001"):
        with pytest.raises(InputValidationError) as caught:
            Transfer.run(**_transfer(one, two, amount))
        assert "amount" in caught.value.fields


def test_it_is_the_reactor_of_the_design() -> None:
    assert issubclass(Transfer, Reactor)
    lock = Transfer.definition.steps["move"].coordination["lock"]
    assert [key.template for key in lock.keys] == ["acct:{source}", "acct:{target}"]
