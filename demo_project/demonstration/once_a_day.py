"""A report a day and a billing a month: the second report skips its step and goes on, the second billing stops at the door."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

from demo_project.demonstration import sabotage
from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage, finished, step_run
from demo_project.shipping.models import Entry, Report
from demo_project.shipping.reactors import DailyReport, MonthlyBilling
from reactor_coord import ExecutionHandle
from reactor_coord.engine.states import ExecutionStatus, StepStatus
from reactor_coord.models import Execution

PROMISE = "a report a day, a billing a month: the second report skips one step, the second billing stops at the door"
BERLIN = ZoneInfo("Europe/Berlin")


def show(stage: Stage) -> None:
    """Two of each, then what they left. Raises ClaimBroken."""
    warehouse = f"north-{stage.label}"
    today = _today()
    first, second = _report(stage, warehouse), _report(stage, warehouse)
    sabotage.report(warehouse)
    written = Report.objects.filter(warehouse=warehouse).count()
    if _today() != today:  # midnight in Berlin fell between the two
        today = _today()
        second = _report(stage, warehouse)
        written -= 1
    claim(written == 1, f"the report of the day was written {written} times")
    claim(_status(first) == StepStatus.SUCCEEDED, f"the first run's report is {_status(first)}")
    claim(_status(second) == StepStatus.SKIPPED, f"the second run's report is {_status(second)} instead of skipped")
    claim(second.result == "was written before", f"the second run did not go on behind its report: {second.result}")
    stage.screen.say(f"two report runs on {today}: one report; the second run skipped that step, went on and completed")
    stage.browse.append(("its report skipped", second.id))
    _bill(stage, today)


def _bill(stage: Stage, today: dt.date) -> None:
    organisation = stage.account("organisation", Decimal(0))
    month = today.replace(day=1)
    ended = [
        _end(stage, MonthlyBilling.options(tags=stage.tags()).enqueue(org=organisation.pk, month=month))
        for _ in range(2)
    ]
    if _today().month == today.month:
        statuses = [row.status for row in ended]
        expected = [ExecutionStatus.COMPLETED, ExecutionStatus.HALTED]
        claim(statuses == expected, f"two billings of a month ended {statuses}: {ended[0].failure}")
        posted = Entry.objects.filter(book=f"org-{organisation.pk}").count()
        claim(posted == 1, f"the month was billed {posted} times")
        stage.screen.say(f"two billings of {month:%B}: one posted; the second halted at the door ({ended[1].reason})")


def _report(stage: Stage, warehouse: str) -> Execution:
    row = _end(stage, DailyReport.options(tags=stage.tags()).enqueue(warehouse=warehouse))
    claim(row.status == ExecutionStatus.COMPLETED, f"a report run ended {row.status}: {row.failure}")
    return row


def _end(stage: Stage, handle: ExecutionHandle) -> Execution:
    identity = handle.id
    return stage.until(lambda: finished(identity), f"the end of {identity}")


def _status(row: Execution) -> str:
    return step_run(row.id, "write").status


def _today() -> dt.date:
    return dt.datetime.now(BERLIN).date()
