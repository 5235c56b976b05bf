"""Errors outside every body that are met while another failure is being told."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection

from reactor_coord import Input, step, testing
from reactor_coord.models import Execution, StepRun
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder, current
from tests.live.reactors import BodyFailed, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Mute:
    """A value that has no text: its `__str__` raises, as one of a model may that follows a relation to nothing."""

    number: int = 1

    def __str__(self) -> str:
        raise ValueError("it has no text")


class Secret(Named):
    """Has a redacted value that has no text."""

    secret = Input(Mute, redact=True)

    a = step(Work)
    b = step(Work, after=a)


@pytest.mark.parametrize("undo_fail_at", ["", "a"])
@pytest.mark.parametrize("way", ["run", "enqueue"])
def test_a_redacted_value_that_has_no_text_costs_neither_the_failure_nor_the_rollback(
    reactor_dispatches: Any, recorder: Recorder, way: str, undo_fail_at: str
) -> None:
    given = {"secret": Mute(), "fail_at": "b", "undo_fail_at": undo_fail_at}
    if way == "run":
        Secret.run(**given)
    else:
        Secret.enqueue(**given)
        drain()
    row = Execution.objects.get()
    assert (row.status, row.lease_token, row.workers_lost) == ("failed", "", 0)
    assert row.why_failed is not None
    assert row.why_failed.error_type == "BodyFailed"
    assert row.why_failed.is_incomplete == bool(undo_fail_at)
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a"]


class Two(Named):
    """A step, and one under a lock."""

    key = Input(str, default="k")

    a = step(Work)
    b = step(LockedWork, after=a)


@pytest.mark.parametrize("error", [OperationalError("gone"), ValueError("a bug of ours")])
def test_an_error_while_the_tree_is_read_leaves_the_row_to_no_lease(
    reactor_dispatches: Any, recorder: Recorder, error: Exception
) -> None:
    """An outage is waited out, and nothing is charged for it; anything else is left to an operator, saying what it was."""
    met: list[str] = []

    def breaks(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if StepRun._meta.db_table in sql and sql.startswith("SELECT") and not met:
            met.append(sql)
            raise error
        return execute(sql, params, many, context)

    handle = Two.enqueue(fail_at="b", fails=1)
    Execution.objects.filter(pk=handle.id).update(started_at=handle.execution.created_at)
    with connection.execute_wrapper(breaks):
        drain(timeout=20)
    assert met
    row = handle.execution
    assert (row.lease_token, row.workers_lost) == ("", 0)
    if isinstance(error, OperationalError):
        assert row.status == "failed" and recorder.sequence() == ["run a", "run b", "comp b", "undo a"]
        assert row.why_failed is not None and row.why_failed.error_type == "BodyFailed"
    else:
        assert (row.status, row.reason) == ("aborted", "ValueError: a bug of ours")
        assert recorder.sequence() == []


class ExitsIn(Named):
    """Raises what ends a process, in what is no body."""

    exits = Input(str)

    a = step(Work)

    @step(exits=exits, after=a)
    def b(exits: str) -> int:
        current().mark("run b")
        if exits == "compensate":
            raise BodyFailed
        return 1

    @b.guard
    def _(exits: str) -> None:
        if exits == "guard":
            sys.exit(3)

    @b.compensate
    def _(error: BaseException, exits: str) -> None:
        current().mark("comp b")
        if exits == "compensate":
            sys.exit(3)

    @b.undo
    def _(result: Any, exits: str) -> None:
        current().mark("undo b")
        if exits == "undo":
            sys.exit(3)

    c = step(Work, after=b, name=exits.map(lambda where: sys.exit(3) if where == "map" else where))


@pytest.mark.parametrize("where, left", [("guard", []), ("map", []), ("compensate", ["b"]), ("undo", ["b"])])
def test_an_exit_by_an_authors_code_that_is_no_body_fails_what_it_is_in_once(
    reactor_dispatches: Any, recorder: Recorder, where: str, left: list[str]
) -> None:
    handle = ExitsIn.enqueue(exits=where, fail_at="c")
    drain()
    row = handle.execution
    assert (row.status, row.lease_token, row.workers_lost) == ("failed", "", 0)
    assert row.why_failed is not None
    assert [each.step for each in row.why_failed.rollback_failures] == left
    assert recorder.sequence()[-1] == "undo a"
    assert recorder.sequence().count(f"{'comp' if where == 'compensate' else 'undo'} b") <= 1


@pytest.mark.parametrize("error", [IntegrityError("no"), OperationalError("away"), ValueError("a bug of ours")])
@pytest.mark.parametrize("way", ["run", "enqueue"])
def test_a_second_error_while_the_first_is_settled_leaves_the_row_to_no_lease(
    reactor_dispatches: Any, recorder: Recorder, error: Exception, way: str
) -> None:
    met: list[str] = []

    def breaks(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "run b" in recorder.sequence() and not met and not sql.startswith("SELECT"):
            met.append(sql)
            raise IntegrityError("the first")
        if "undo a" in recorder.sequence() and len(met) == 1 and not sql.startswith("SELECT"):
            met.append(sql)
            raise error
        return execute(sql, params, many, context)

    with connection.execute_wrapper(breaks), contextlib.suppress(type(error)):
        if way == "run":
            Two.run()
        else:
            Two.enqueue()
            drain(timeout=20)
    drain(timeout=20)
    assert len(met) == 2
    row = Execution.objects.get()
    assert (row.lease_token, row.workers_lost) == ("", 0)
    if isinstance(error, OperationalError):
        assert row.status == "failed", "an outage is waited out"
    else:
        assert row.status == "aborted" and type(error).__name__ in row.reason
        row.undo()
        drain(timeout=20)
        row.refresh_from_db()
        assert row.status in {"cancelled", "reverted", "failed"}
    testing.assert_free("k")
