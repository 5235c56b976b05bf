"""What an incomplete rollback left is tried again by `undo()`, wherever it ran: below a half-done step, and in units."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Input, async_step, compose, element, map_each, step, testing
from reactor_coord.operations import verbs
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder, current
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class _Balks(Work):
    """Its first undo fails, in each test."""

    def undo(self, result: Any) -> None:
        """Counted by the recorder, over all processes."""
        is_first = not current().count(f"undo {self.context.step}")
        super().undo(result)
        if is_first:
            raise ValueError("the first undo fails")


class Inner(Named):
    """Balks, then waits for a key."""

    key = Input(str)
    balks = step(_Balks)
    waits = step(LockedWork, seconds=0, after=balks)


class InChild(Named):
    """In a composed child."""

    key = Input(str)
    a = step(Work)
    child = compose(Inner, after=a)
    z = step(Work, after=child)


class InUnit(Named):
    """In a unit."""

    key = Input(str)
    a = step(Work)
    balks = async_step(_Balks, after=a)
    waits = step(LockedWork, seconds=0, after=a)
    z = step(Work, after=[balks, waits])


class InElement(Named):
    """In one element of a map."""

    key = Input(str)
    items = Input(list[str], default=["only"])
    a = step(Work)
    balks = map_each(_Balks, over=items, name=element(), after=a)
    waits = step(LockedWork, seconds=0, after=balks)
    z = step(Work, after=waits)


def _left(handle: ExecutionHandle) -> list[str]:
    return [each["step"] for each in (handle.execution.failure or {})["rollback_failures"]]


@pytest.mark.parametrize("how", ["cancelled", "failed", "undone"])
@pytest.mark.parametrize("reactor", [InChild, InUnit, InElement])
def test_what_stayed_undone_is_undone_at_the_second_try(
    reactor_dispatches: Any, recorder: Recorder, reactor: Any, how: str
) -> None:
    handle = reactor.enqueue(key="k", fail_at="z" if how == "failed" else "")
    with testing.hold("k"):
        drain()
        if how == "cancelled":
            verbs.cancel(handle.execution)
    drain(3)
    if how == "undone":
        assert handle.status == "completed"
        verbs.undo(handle.execution)
        drain()
    assert _left(handle) == ["balks"]
    verbs.undo(handle.execution)
    drain()
    assert _left(handle) == []
    assert recorder.count("undo balks") == 2
    assert recorder.count("undo a") == 1
