"""A file of payments, some failing late, a worker process killed in the middle of a charge: then every cent is counted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from demo_project.demonstration import reckoning, sabotage
from demo_project.demonstration.claims import ClaimBroken, claim
from demo_project.demonstration.services import WorkerFailed
from demo_project.demonstration.stage import PATIENCE_SECONDS, Stage
from demo_project.payments import journal
from demo_project.payments.models import Account
from demo_project.payments.payment_file import PaymentRow
from demo_project.payments.reactors import Payment
from reactor_coord.engine.states import TERMINAL
from reactor_coord.models import Execution

PACE_SECONDS = 0.005
VICTIM_PACE_SECONDS = 0.5
LOOK_SECONDS = 0.05


def promise(rows: Sequence[PaymentRow]) -> str:
    """What this part shows, for these rows."""
    accounts = len({row.account for row in rows})
    failing = sum(1 for row in rows if row.fail_at)
    return f"{len(rows)} payments on {accounts} accounts, {failing} to fail late, one worker process killed: every cent right"


def show(stage: Stage, rows: Sequence[PaymentRow]) -> None:
    """Pay the file, kill half-way, reckon. Raises ClaimBroken."""
    accounts = _open_accounts(stage, rows)
    begun = stage.screen.elapsed
    victim = _victim(rows)
    killer = Killer(stage, victim)
    ids = {row.reference: _enqueue(stage, row, accounts[row.account], killer) for row in rows}
    stage.screen.say(f"{len(rows)} payments enqueued")
    _wait_for_all(stage, len(rows))
    took = stage.screen.elapsed - begun
    stage.screen.say(
        f"all {len(rows)} over after {took:.1f} s ({len(rows) / took:.0f} a second, the killed one's wait included)"
    )
    _tell_of_victim(stage, victim, ids[victim.reference], killer.kill_mark())
    sabotage.accounts(accounts.values())
    reckoning.check_ends(rows, ids)
    for line in reckoning.check_money(rows, accounts):
        stage.screen.say(line)


class Killer(threading.Thread):
    """Watches the journal until the victim's charge has written its money, then kills the process that is in its body."""

    def __init__(self, stage: Stage, victim: PaymentRow) -> None:
        super().__init__(daemon=True)
        self.victim = victim
        self._stage = stage
        self._execution: UUID | None = None
        self._killed: journal.Mark | None = None

    def watch(self, execution: UUID) -> None:
        """Begin, now that the victim has an execution."""
        self._execution = execution
        self.start()

    def run(self) -> None:
        """SIGKILL, once, unless the body was quicker."""
        assert self._execution is not None
        try:
            mark = self._stage.until(
                lambda: self._stage.mark("written", "charge", self._execution), f"the charge of {self.victim.reference}"
            )
        except (ClaimBroken, WorkerFailed):
            return  # the main thread sees the same, and tells
        if self._stage.mark("end", "charge", self._execution) is not None:
            return
        os.kill(mark.pid, signal.SIGKILL)
        self._killed = mark
        self._stage.screen.say(
            f"SIGKILL to worker process {mark.pid}, in the charge of {self.victim.reference}: "
            "money taken, result not recorded"
        )

    def kill_mark(self) -> journal.Mark:
        """The mark at which the kill came. Raises ClaimBroken when it did not."""
        self.join()
        if self._killed is None:
            raise ClaimBroken(f"payment {self.victim.reference} was over before its worker process could be killed")
        return self._killed


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


def _enqueue(stage: Stage, row: PaymentRow, account: Account, killer: Killer) -> UUID:
    is_victim = row is killer.victim
    tags = stage.tags("worker killed" if is_victim else "")
    options = Payment.options(idempotency_key=f"{stage.label}/{row.reference}", tags=tags)
    pace = VICTIM_PACE_SECONDS if is_victim else PACE_SECONDS
    execution = options.enqueue(account_id=account.pk, amount=row.amount, fail_at=row.fail_at, pace=pace).id
    if is_victim:
        killer.watch(execution)
    return execution


def _wait_for_all(stage: Stage, total: int) -> None:
    """Until all are over. Raises ClaimBroken when nothing moves any more."""
    mine = Execution.objects.filter(idempotency_key__startswith=f"{stage.label}/")
    done, moved = 0, time.monotonic()
    with stage.screen.progress("payments over", total) as tell:
        while done < total:
            stage.worker.check()
            over = mine.filter(status__in=TERMINAL).count()
            if over > done:
                done, moved = over, time.monotonic()
                tell(done)
            if time.monotonic() - moved > PATIENCE_SECONDS:
                raise ClaimBroken(_stuck(list(mine.exclude(status__in=TERMINAL)[:5])))
            time.sleep(LOOK_SECONDS)


def _stuck(rows: Sequence[Execution]) -> str:
    some = ", ".join(f"{row.idempotency_key} is {row.status}" for row in rows)
    return f"nothing moved for {PATIENCE_SECONDS:g} s: {some}"


def _tell_of_victim(stage: Stage, victim: PaymentRow, execution: UUID, killed: journal.Mark) -> None:
    again = [
        each.at
        for each in journal.read(stage.marks)
        if (each.mark, each.body, each.execution) == ("begin", "charge", str(execution)) and each.at > killed.at
    ]
    claim(bool(again), f"the charge of {victim.reference} was never taken up again after the kill")
    stage.screen.say(
        f"{victim.reference} was taken up again {again[0] - killed.at:.1f} s after the kill, by another process"
    )
    stage.browse.append(("worker killed in its charge", execution))
