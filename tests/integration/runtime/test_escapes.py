"""An error outside every body is told as what it was, by the process that met it; only the death of a process counts as one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from reactor_coord import Input, async_step, compose, element, interrupt, map_each, step
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.arriving import COUNTDOWN, bound_wait
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import runs
from tests.live.models import Posting
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Child(Named):
    """What is inserted below a step."""

    c = step(Work)


class Composing(Named):
    """A step, and a child."""

    a = step(Work)
    below = compose(Child, after=a)


class Mapping_(Named):
    """A step, and elements."""

    a = step(Work)
    below = map_each(Work, over=[1, 2], name=element().map(str), after=a)


class Handing(Named):
    """A step, and work for another worker."""

    a = step(Work)
    below = async_step(Work, after=a)


@contextmanager
def no_children() -> Iterator[None]:
    """The database refuses every row that has a parent."""
    table = Execution._meta.db_table
    if connection.vendor == "sqlite":
        refuse = "SELECT RAISE(ABORT, 'no children today')"
        statements = [
            f"CREATE TRIGGER no_children BEFORE INSERT ON {table} WHEN NEW.parent_id IS NOT NULL BEGIN {refuse}; END"
        ]
        undo = ["DROP TRIGGER no_children"]
    else:
        refuse = "RAISE integrity_constraint_violation USING MESSAGE = 'no children today'"
        each_child = "FOR EACH ROW WHEN (NEW.parent_id IS NOT NULL)"
        statements = [
            f"CREATE FUNCTION no_children() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {refuse}; END $$",
            f"CREATE TRIGGER no_children BEFORE INSERT ON {table} {each_child} EXECUTE FUNCTION no_children()",
        ]
        undo = [f"DROP TRIGGER no_children ON {table}", "DROP FUNCTION no_children"]
    with connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for each in undo:
                cursor.execute(each)


@pytest.mark.parametrize("reactor", [Composing, Mapping_, Handing])
@pytest.mark.parametrize("way", ["u01 in a worker", "u02 in process"])
def test_u01_u02_a_row_that_the_database_refuses_fails_its_step(
    reactor_dispatches: Any, recorder: Recorder, reactor: Any, way: str
) -> None:
    if way == "u02 in process" and reactor is Handing:
        reactor = Composing  # in process, too, its unit is a row for a worker
    with no_children():
        if way == "u01 in a worker":
            row = reactor.enqueue().execution
            drain()
        else:
            row = reactor.run().execution
    row.refresh_from_db()
    assert row.status == "failed", row.failure
    assert row.why_failed.step == "below"
    assert row.why_failed.error_type == "IntegrityError"
    assert "no children today" in row.why_failed.message
    assert row.lease_token == ""
    assert row.workers_lost == 0
    assert recorder.sequence() == ["run a", "undo a"]


class Asking(Named):
    """Asks under a name of the test's."""

    question = Input(str)

    ask = interrupt(correlation_id=question, payload={"yes": bool})


@pytest.mark.parametrize("name", ["lone \ud800", "nul \x00", "x" * 256, ""], ids=["surrogate", "nul", "long", "empty"])
def test_u03_u04_a_correlation_id_that_cannot_be_stored_as_it_is_fails_the_pause(
    reactor_dispatches: Any, name: str
) -> None:
    handle = Asking.enqueue(question=name)
    drain()
    assert handle.status == "failed"
    why = handle.execution.why_failed
    assert why is not None
    assert (why.step, why.error_type) == ("ask", "ValueError")
    assert "255" in why.message
    with pytest.raises(ExecutionConflict):
        Asking.resume(name, payload={"yes": True})


class Exits(Named):
    """Its second body raises what usually ends a process."""

    how = Input(str)

    a = step(Work)

    @step(how=how, after=a)
    def exits(how: str) -> None:
        from reactor_coord.testing import recorder

        recorder.current().mark("run exits")
        if how == "SystemExit":
            sys.exit(3)
        raise {"KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[how]

    @exits.compensate
    def _(error: BaseException, how: str) -> None:
        from reactor_coord.testing import recorder

        recorder.current().mark("comp exits")


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_u06_a_body_in_a_worker_that_raises_them_by_itself_fails_its_step_once(
    reactor_dispatches: Any, recorder: Recorder, how: str
) -> None:
    handle = Exits.enqueue(how=how)
    drain()
    assert handle.status == "failed"
    why = handle.execution.why_failed
    assert why is not None
    assert why.error_type == how
    assert recorder.sequence() == ["run a", "run exits", "comp exits", "undo a"]
    assert runs(handle)["exits"].workers_lost == 0


class Holding(LockedWork):
    """Has a row of the database as an argument."""

    thing = Input(Any)


class Locked(Named):
    """A locked step that is undone when the last one fails."""

    key = Input(str, default="k")
    thing = Input(Any)

    a = step(Holding)
    last = step(Work, after=a)


def test_u07_a_database_that_blinks_in_a_rollback_costs_no_undo(reactor_dispatches: Any, recorder: Recorder) -> None:
    blinked: list[str] = []

    def blink(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if Posting._meta.db_table in sql and "comp last" in recorder.sequence() and not blinked:
            blinked.append(sql)
            raise OperationalError("the connection is lost")
        return execute(sql, params, many, context)

    posting = Posting.objects.create(account="k", amount=1, execution="")
    handle = Locked.enqueue(fail_at="last", thing=posting)
    with connection.execute_wrapper(blink):
        drain()
    assert blinked
    assert handle.status == "rolling_back"
    waits_on = handle.execution.waits_on
    assert waits_on is not None
    assert waits_on.holder == "OperationalError: the connection is lost"
    Execution.objects.update(resume_at=handle.execution.created_at)
    sweep_once()
    drain()
    assert handle.status == "failed"
    assert recorder.sequence() == ["run a", "run last", "comp last", "undo a"]
    why = handle.execution.why_failed
    assert why is not None
    assert not why.is_incomplete
    assert why.message == "last was told to fail"
    assert handle.execution.workers_lost == 0


def test_an_outage_behind_a_body_leaves_word_that_it_began(reactor_dispatches: Any, recorder: Recorder) -> None:
    """Its checkpoint could not be written; cancelled before it runs again, it is cleaned up like any body that began."""
    away: list[str] = []

    def outage(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "run a" in recorder.sequence() and not away:
            away.append(sql)
            raise OperationalError("the disk is full for a moment")
        return execute(sql, params, many, context)

    handle = Composing.enqueue()
    with connection.execute_wrapper(outage):
        drain()
    assert away
    assert handle.status == "parked"
    assert handle.execution.lease_token == ""
    handle.cancel("no")
    drain()
    assert recorder.sequence() == ["run a", "comp a"]
    assert handle.status == "cancelled", handle.execution.failure


@pytest.mark.parametrize("countdown", [1e300, float("inf"), float("nan"), "soon", None, [], {"a": 1}, -1e300, "1e999"])
def test_u08_a_damaged_countdown_ends_nothing(countdown: object) -> None:
    bound_wait({COUNTDOWN: countdown, "eta": "2026-01-01T00:00:00+00:00"})
    bound_wait({COUNTDOWN: 1, "eta": countdown})
    bound_wait(None)
