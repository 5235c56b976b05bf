"""An operator closes a rollback that cannot be completed: by code, API and command, with a reason, once."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from reactor_coord import map_each, step, testing
from reactor_coord.declare.references import element
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution, StepRun
from reactor_coord.operations import close
from reactor_coord.runtime.outcome import ExecutionHandle
from tests.integration.runtime.support import row, trace
from tests.live.reactors import Named, Payment, Work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]


def left_undone() -> ExecutionHandle:
    """An execution whose rollback is incomplete."""
    handle = Payment.enqueue(key="k", fail_at="notify", undo_fail_at="charge")
    testing.drain()
    assert row(handle).why_failed.is_incomplete  # type: ignore[union-attr]
    return handle


def test_what_was_left_stays_listed_with_who_closed_it_and_why() -> None:
    handle = left_undone()
    close(handle.execution, reason="refunded by telephone", actor="ann")
    failure = row(handle).why_failed
    assert failure is not None and not failure.is_incomplete and failure.closed_at > 0
    assert (failure.closed_by, failure.closed_because) == ("ann", "refunded by telephone")
    assert [each.step for each in failure.rollback_failures] == ["charge"]
    (told,) = trace(handle, "operator")
    assert (told.data["verb"], told.data["reason"], told.data["actor"]) == ("close", "refunded by telephone", "ann")


def test_nothing_of_it_is_tried_again_and_it_can_be_retried() -> None:
    handle = left_undone()
    with pytest.raises(ExecutionConflict, match="undo it, or close it by hand, then retry"):
        handle.execution.retry()
    handle.execution.close("refunded by telephone")
    with pytest.raises(ExecutionConflict, match="its rollback is closed"):
        handle.execution.undo()
    assert not StepRun.objects.filter(execution__root=handle.id, rollback_failure__isnull=False).exists()
    assert handle.execution.retry().id != handle.id


def test_it_is_refused_without_a_reason_twice_and_where_nothing_was_left() -> None:
    handle = left_undone()
    with pytest.raises(ExecutionConflict, match="say what became of"):
        handle.execution.close("  ")
    handle.execution.close("dealt with")
    with pytest.raises(ExecutionConflict, match="no rollback of it is incomplete"):
        handle.execution.close("dealt with")
    complete = Payment.enqueue(key="other", fail_at="notify")
    testing.drain()
    with pytest.raises(ExecutionConflict, match="no rollback of it is incomplete"):
        complete.execution.close("dealt with")


def test_the_command_closes_it_and_wants_the_reason() -> None:
    handle = left_undone()
    with pytest.raises(CommandError, match="say what became of"):
        call_command("execution", str(handle.id), "close", stdout=StringIO())
    call_command("execution", str(handle.id), "close", reason="dealt with", stdout=StringIO())
    assert not row(handle).why_failed.is_incomplete  # type: ignore[union-attr]


class Each(Named):
    """Elements whose undo fails, then a failure behind them."""

    all = map_each(Work, over=["a", "b"], name=element(), undo_fail_at="all")
    behind = step(Work, after=all, fail_at="behind")


def test_units_that_were_left_are_closed_with_it() -> None:
    handle = Each.enqueue()
    testing.drain()
    assert row(handle).why_failed.is_incomplete  # type: ignore[union-attr]
    handle.execution.close("dealt with")
    units: Any = Execution.objects.filter(parent=handle.id)
    assert units.count() == 2
    assert not any(unit.why_failed.is_incomplete for unit in units if unit.why_failed is not None)
