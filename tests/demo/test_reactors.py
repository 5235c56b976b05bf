"""The demo's workflows, tested with what a user has: the public API and `reactor_coord.testing`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from django.core import mail
from django.db import connections

from demo_project.payments import bank, journal, ledger
from demo_project.payments.models import Account, LedgerEntry
from demo_project.payments.reactors import Charge, MoveMoney, Payment, Transfer
from reactor_coord import Outcome
from reactor_coord.errors import InputValidationError
from reactor_coord.testing import (
    BareContext,
    LiveWorker,
    assert_contended,
    assert_free,
    assert_locked,
    assert_ran,
    assert_rolled_back,
    bare,
    drain,
    hold,
)
from reactor_coord.testing.dispatches import Dispatches
from tests.support.patience import patience

pytestmark = pytest.mark.django_db(transaction=True)

TEN = Decimal("10.00")


@pytest.fixture
def account() -> Account:
    """With 100.00 in it."""
    return ledger.open_account("checking", Decimal("100.00"))


@pytest.fixture
def savings() -> Account:
    """Another, with 50.00."""
    return ledger.open_account("savings", Decimal("50.00"))


def _moves(account: Account) -> list[str]:
    """The ledger after the opening; the balance must agree with it."""
    account.refresh_from_db()
    assert account.ledger_balance() == account.balance
    return [f"{entry.amount:+}" for entry in account.entries.exclude(kind=LedgerEntry.Kind.OPENING)]


def test_a_payment_audits_charges_and_notifies_in_that_order(account: Account) -> None:
    outcome = Payment.run(account_id=account.pk, amount=TEN)
    assert outcome.succeeded
    assert_ran(outcome, "audit", "charge", "notify")
    assert _moves(account) == ["-10.00"]
    assert outcome.value["receipt"] in mail.outbox[0].body
    assert_free(f"acct:{account.pk}")


def test_a_payment_whose_letter_fails_is_paid_back(account: Account) -> None:
    outcome = Payment.run(account_id=account.pk, amount=TEN, fail_at="notify")
    assert_rolled_back(outcome, "charge")
    assert outcome.failure is not None
    assert outcome.failure.step == "notify"
    assert _moves(account) == ["-10.00", "+10.00"]
    assert_free(f"acct:{account.pk}")


def test_a_charge_that_fails_after_it_wrote_compensates_itself(account: Account) -> None:
    outcome = Payment.run(account_id=account.pk, amount=TEN, fail_at="charge")
    assert_rolled_back(outcome, "charge")
    assert _moves(account) == ["-10.00", "+10.00"]


def test_a_payment_that_fails_before_its_charge_moves_nothing(account: Account) -> None:
    outcome = Payment.run(account_id=account.pk, amount=TEN, fail_at="audit")
    assert outcome.failed
    assert _moves(account) == []


def test_more_than_there_is_is_refused_and_said(account: Account) -> None:
    outcome = Payment.run(account_id=account.pk, amount=Decimal("100.01"))
    assert outcome.failure is not None
    assert outcome.failure.error_type == "InsufficientFunds"
    assert "100.00" in outcome.failure.message
    assert _moves(account) == []


@pytest.mark.parametrize("wrong", [{"amount": -1}, {"amount": "1.005"}, {"fail_at": "later"}, {"pace": 60}])
def test_wrong_inputs_are_refused_by_name(account: Account, wrong: dict[str, object]) -> None:
    with pytest.raises(InputValidationError) as caught:
        Payment.run(**{"account_id": account.pk, "amount": TEN, **wrong})
    assert set(caught.value.fields) == set(wrong)


def test_the_same_idempotency_key_is_the_same_payment(account: Account) -> None:
    first, second = (
        Payment.options(idempotency_key="order-1").run(account_id=account.pk, amount=TEN) for _ in range(2)
    )
    assert first.execution.pk == second.execution.pk
    assert _moves(account) == ["-10.00"]


def test_a_charge_that_is_repeated_charges_once(account: Account) -> None:
    context = BareContext(idempotency_key="key")
    results = [bare(Charge, context=context, account_id=account.pk, amount=TEN).run() for _ in range(2)]
    assert results == [{"receipt": "key"}] * 2
    assert _moves(account) == ["-10.00"]
    for _ in range(2):
        bare(Charge, context=context, account_id=account.pk, amount=TEN).undo(results[0])
    assert _moves(account) == ["-10.00", "+10.00"]


def test_a_charge_by_itself_takes_its_lock_as_well(account: Account) -> None:
    with hold(f"acct:{account.pk}") as held:
        assert_locked(f"acct:{account.pk}")
        threading.Timer(0.2, held.release).start()
        assert Charge.call(account_id=account.pk, amount=TEN)["receipt"]
    assert _moves(account) == ["-10.00"]


def test_an_enqueued_payment_steps_aside_for_whoever_has_its_account(
    account: Account, reactor_dispatches: Dispatches
) -> None:
    handle = Payment.enqueue(account_id=account.pk, amount=TEN)
    other = Payment.enqueue(account_id=ledger.open_account("other", TEN).pk, amount=TEN)
    with hold(f"acct:{account.pk}"):
        drain()
        assert_contended(handle, "charge", key=f"acct:{account.pk}")
        assert (handle.status, other.status) == ("parked", "completed")
        assert _moves(account) == []
    assert str(handle.id) in reactor_dispatches.ids
    drain()
    assert handle.status == "completed"
    assert_ran(handle, "notify", after="charge")
    assert _moves(account) == ["-10.00"]


def test_charges_of_one_account_never_overlap_and_audits_do(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    monkeypatch.setenv("DEMO_JOURNAL", str(path))
    together = threading.Barrier(3)

    def pay() -> Outcome:
        together.wait()
        try:
            return Payment.run(account_id=account.pk, amount=TEN, pace=0.2)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        outcomes = [future.result() for future in [pool.submit(pay) for _ in range(3)]]
    assert all(outcome.succeeded for outcome in outcomes)
    assert _moves(account) == ["-10.00"] * 3
    spans = journal.spans(journal.read(path))
    charges, audits = ([each for each in spans if each.body == body] for body in ("charge", "audit"))
    assert all(one.overlap(other) <= 0 for one in charges for other in charges if one is not other)
    assert any(one.overlap(other) > 0 for one in audits for other in audits if one is not other)


def test_a_transfer_moves_money_and_tells_who_paid(account: Account, savings: Account) -> None:
    outcome = Transfer.run(source=account.pk, target=savings.pk, amount=TEN)
    assert outcome.unwrap() is None  # `tell`, the last step, returns nothing
    assert outcome.results["move"] == {"balance": Decimal("90.00")}
    assert (_moves(account), _moves(savings)) == (["-10.00"], ["+10.00"])
    assert "90.00" in mail.outbox[0].body
    account.refresh_from_db()
    assert account.fence > 0


def test_a_transfer_within_one_account_is_skipped(account: Account) -> None:
    outcome = Transfer.run(source=account.pk, target=account.pk, amount=TEN)
    assert outcome.succeeded
    assert _moves(account) == []
    assert "None" in mail.outbox[0].body


def test_a_transfer_waits_for_both_accounts(account: Account, savings: Account, reactor_dispatches: Dispatches) -> None:
    handle = Transfer.enqueue(source=account.pk, target=savings.pk, amount=TEN)
    with hold(f"acct:{savings.pk}"):
        drain()
        assert_contended(handle, "move", key=f"acct:{savings.pk}")
        assert_free(f"acct:{account.pk}")
    drain()
    assert handle.status == "completed"
    assert _moves(savings) == ["+10.00"]


def test_a_holder_that_came_too_late_is_refused_where_the_money_is(account: Account, savings: Account) -> None:
    late = BareContext(fences={f"acct:{account.pk}": 1})
    bank.debit(account.pk, TEN, fence=2)
    step = bare(MoveMoney, context=late, source=account.pk, target=savings.pk, amount=TEN)
    with pytest.raises(bank.StaleFence, match="too late"):
        step.run()
    assert _moves(account) == ["-10.00"]


@pytest.mark.live
def test_payments_and_transfers_run_in_a_worker(
    account: Account, savings: Account, live_worker: Callable[..., LiveWorker]
) -> None:
    live_worker(concurrency=2)
    handles = [Payment.enqueue(account_id=account.pk, amount=TEN, pace=0.1) for _ in range(2)]
    handles.append(Transfer.enqueue(source=savings.pk, target=account.pk, amount=TEN))
    assert all(handle.wait(timeout=patience(30)).succeeded for handle in handles)
    assert sorted(_moves(account)) == ["+10.00", "-10.00", "-10.00"]
    assert _moves(savings) == ["-10.00"]


@pytest.mark.live
def test_two_payments_of_one_account_in_a_worker_contend(
    account: Account, live_worker: Callable[..., LiveWorker]
) -> None:
    live_worker(concurrency=2)
    handles = [Payment.enqueue(account_id=account.pk, amount=TEN, pace=0.5) for _ in range(2)]
    outcomes = [handle.wait(timeout=patience(30)) for handle in handles]
    assert all(outcome.succeeded for outcome in outcomes)
    refused = [each for each in outcomes if _was_refused(each)]
    assert len(refused) == 1
    assert_ran(refused[0], "charge", "notify")
    assert _moves(account) == ["-10.00", "-10.00"]


def _was_refused(outcome: Outcome) -> bool:
    try:
        assert_contended(outcome, "charge")
    except AssertionError:
        return False
    return True
