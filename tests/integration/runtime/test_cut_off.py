"""The database connection is lost in the middle of a run: what was done is written on a new one, and nothing runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection

from reactor_coord import Input, Reactor, Step, step
from reactor_coord.models import TraceEvent
from reactor_coord.storage import postgresql
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _can_be_cut_off() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only a connection to a server can be lost")


def _cut(pid: int) -> None:
    """From another connection, as an administrator, a pooler or a firewall would."""

    def terminate() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])

    Background(terminate).result()


def _own_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
    return pid


class _Cut(Step):
    """Outlives its connection."""

    how = Input(str)

    def run(self) -> None:
        """Mark, then lose the connection."""
        current().mark(f"run {self.context.step}")
        _cut(_own_pid())
        if self.how == "fails":
            raise ValueError("it was told to fail")

    def undo(self, result: None) -> None:
        """As its body."""
        current().mark(f"undo {self.context.step}")
        _cut(_own_pid())


class Cut(Reactor):
    """Two of them."""

    how = Input(str, default="")
    first = step(_Cut, how="")
    second = step(_Cut, how=how, after=first)


def test_a_body_that_outlives_its_connection_runs_once(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = Cut.enqueue()
    drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run first", "run second"]


def test_so_does_an_undo(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = Cut.enqueue(how="fails")
    drain()
    assert handle.status == "failed"
    assert recorder.sequence() == ["run first", "run second", "undo first"]


def test_a_checkpoint_whose_answer_was_lost_is_not_written_twice(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement committed, and the connection went before it could say so: each time it is written."""

    def answerless(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*parts: Any) -> Any:
            write(*parts)
            _cut(_own_pid())
            raise OperationalError("the connection is lost")

        return written

    handle = Cut.enqueue()
    monkeypatch.setattr(postgresql, "write", answerless(postgresql.write))
    drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run first", "run second"]
    kinds = list(TraceEvent.objects.filter(root_id=handle.id).order_by("id").values_list("kind", flat=True))
    assert kinds.count("step_succeeded") == 2
