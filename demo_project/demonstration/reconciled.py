"""A file of payments, some failing late, a worker process killed in the middle of a charge: then every cent is counted."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from demo_project.demonstration import sabotage
from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.demonstration.screen import Screen
from demo_project.demonstration.stage import PATIENCE_SECONDS, Stage
from demo_project.payments import journal
from demo_project.payments.models import Account, LedgerEntry
from demo_project.payments.payment_file import PaymentRow
from demo_project.payments.reactors import Payment
from reactor_coord.engine.states import TERMINAL, ExecutionStatus
from reactor_coord.models import Execution

PACE_SECONDS = 0.005
VICTIM_PACE_SECONDS = 0.5
LOOK_SECONDS = 0.05
CHARGED = ("", "charge", "notify")
"""Where a payment may fail and have charged before."""


def promise(rows: Sequence[PaymentRow]) -> str:
    """What this part shows, for these rows."""
    accounts = len({row.account for row in rows})
    failing = sum(1 for row in rows if row.fail_at)
    return f"{len(rows)} payments on {accounts} accounts, {failing} to fail late, one worker process killed: every cent right"


def show(stage: Stage, rows: Sequence[PaymentRow]) -> None:
    """Pay the file, kill half-way, reckon. Raises ClaimBroken."""
    accounts = _open_accounts(stage, rows)
    victim = _victim(rows)
    ids = {row.reference: _enqueue(stage, row, accounts[row.account], row is victim) for row in rows}
    begun = stage.screen.elapsed
    stage.screen.say(f"{len(rows)} payments enqueued")
    killed = _pay_all(stage, ids, victim)
    took = stage.screen.elapsed - begun
    stage.screen.say(
        f"all {len(rows)} over after {took:.1f} s ({len(rows) / took:.0f} a second, the killed one's wait included)"
    )
    _tell_of_victim(stage, victim, ids[victim.reference], killed)
    sabotage.perhaps(accounts.values())
    _check_ends(rows, ids)
    _check_money(stage.screen, rows, accounts)


def _open_accounts(stage: Stage, rows: Sequence[PaymentRow]) -> dict[str, Account]:
    """Each account with enough for all its payments, whatever their order."""
    needed: Counter[str] = Counter()
    for row in rows:
        needed[row.account] += row.amount  # type: ignore[assignment]
    return {name: stage.account(name, Decimal(total) + 100) for name, total in sorted(needed.items())}


def _victim(rows: Sequence[PaymentRow]) -> PaymentRow:
    """The payment whose worker is to be killed: the nearest to the middle of the file that is charged."""
    middle = len(rows) // 2
    fitting = [row for row in rows if row.fail_at in ("", "notify")]
    if not fitting:
        raise ClaimBroken(
            "the file has no payment that gets past its charge: there is none whose worker could be killed"
        )
    return min(fitting, key=lambda row: (row.fail_at != "", abs(rows.index(row) - middle)))


def _enqueue(stage: Stage, row: PaymentRow, account: Account, is_victim: bool) -> UUID:
    options = Payment.options(idempotency_key=f"{stage.label}/{row.reference}", tags={"demo": stage.label})
    pace = VICTIM_PACE_SECONDS if is_victim else PACE_SECONDS
    return options.enqueue(account_id=account.pk, amount=row.amount, fail_at=row.fail_at, pace=pace).id


def _pay_all(stage: Stage, ids: dict[str, UUID], victim: PaymentRow) -> journal.Mark:
    """Wait until all are over, killing on the way; the mark at which the kill came."""
    mine = Execution.objects.filter(idempotency_key__startswith=f"{stage.label}/")
    killed: journal.Mark | None = None
    done, moved = 0, time.monotonic()
    with stage.screen.progress("payments over", len(ids)) as tell:
        while done < len(ids):
            stage.worker.check()
            if killed is None:
                killed = _kill(stage, ids[victim.reference], victim)
            over = mine.filter(status__in=TERMINAL).count()
            if over > done:
                done, moved = over, time.monotonic()
                tell(done)
            claim(time.monotonic() - moved < PATIENCE_SECONDS, _stuck(mine.exclude(status__in=TERMINAL)[:5]))
            time.sleep(LOOK_SECONDS)
    if killed is None:
        raise ClaimBroken(f"payment {victim.reference} was over before its worker process could be killed")
    return killed


def _kill(stage: Stage, execution: UUID, victim: PaymentRow) -> journal.Mark | None:
    """SIGKILL to the process that has written the victim's charge and not come back from its body."""
    mark = stage.mark("written", "charge", execution)
    if mark is None or stage.mark("end", "charge", execution) is not None:
        return None
    os.kill(mark.pid, signal.SIGKILL)
    stage.screen.say(
        f"SIGKILL to worker process {mark.pid}, in the charge of {victim.reference}: money taken, result not recorded"
    )
    return mark


def _stuck(rows: Sequence[Execution]) -> str:
    some = ", ".join(f"{row.idempotency_key} is {row.status}" for row in rows)
    return f"nothing moved for {PATIENCE_SECONDS:g} s: {some}"


def _tell_of_victim(stage: Stage, victim: PaymentRow, execution: UUID, killed: journal.Mark) -> None:
    again = [
        each.at
        for each in journal.read(stage.journal)
        if (each.mark, each.body, each.execution) == ("begin", "charge", str(execution)) and each.at > killed.at
    ]
    claim(bool(again), f"the charge of {victim.reference} was never taken up again after the kill")
    stage.screen.say(
        f"{victim.reference} was taken up again {again[0] - killed.at:.1f} s after the kill, by another process"
    )
    stage.browse.append(("worker killed in its charge", execution))


def _check_ends(rows: Sequence[PaymentRow], ids: dict[str, UUID]) -> None:
    """Nothing lost: every line has its execution, over and as the line says."""
    found = dict(Execution.objects.filter(pk__in=ids.values()).values_list("pk", "status"))
    for row in rows:
        expected = ExecutionStatus.FAILED if row.fail_at else ExecutionStatus.COMPLETED
        status = found.get(ids[row.reference])
        claim(status == expected, f"payment {row.reference} (line {row.line}) is {status} instead of {expected}")


def _check_money(screen: Screen, rows: Sequence[PaymentRow], accounts: dict[str, Account]) -> None:
    """Nothing charged twice, and every account what its ledger and the file say."""
    for name, account in accounts.items():
        account.refresh_from_db()
        mine = [row for row in rows if row.account == name]
        charged = Counter(row.amount for row in mine if row.fail_at in CHARGED)
        refunded = Counter(row.amount for row in mine if row.fail_at in ("charge", "notify"))
        _check_entries(name, account, LedgerEntry.Kind.CHARGE, charged)
        _check_entries(name, account, LedgerEntry.Kind.REFUND, refunded)
        paid = sum((row.amount for row in mine if not row.fail_at), Decimal(0))
        opening = account.entries.get(kind=LedgerEntry.Kind.OPENING).amount
        claim(
            account.ledger_balance() == account.balance,
            f"account {name} has {account.balance}, its ledger adds up to {account.ledger_balance()}",
        )
        claim(
            account.balance == opening - paid,
            f"account {name} has {account.balance}; by the file it should have {opening} - {paid} = {opening - paid}",
        )
        screen.say(
            f"{name:<10} {opening:>10} - {paid:>9} = {account.balance:>9}   ledger {account.ledger_balance():>9}   right"
        )


def _check_entries(name: str, account: Account, kind: LedgerEntry.Kind, expected: Counter[Decimal]) -> None:
    found = Counter(abs(entry.amount) for entry in account.entries.filter(kind=kind))
    for amount in found - expected:
        raise ClaimBroken(f"account {name}: a {kind} of {amount} is there once too often")
    for amount in expected - found:
        raise ClaimBroken(f"account {name}: a {kind} of {amount} is missing from the ledger")
