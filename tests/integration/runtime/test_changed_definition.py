"""A definition that changes while an execution is parked: what was begun for a step that is gone is never dropped silently."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from reactor_coord import Input, Step, async_step, compose, step, testing
from reactor_coord.errors import UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver, finish, runner, tree, units
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import Background
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

Without = Callable[[Any, str], None]


class Inner(Named):
    """A step, then one that waits for its key."""

    key = Input(str)
    one = step(Work)
    two = step(LockedWork, seconds=0, after=one)


class Composed(Named):
    """A child between two steps."""

    key = Input(str)
    a = step(Work)
    child = compose(Inner, after=a)
    z = step(Work, after=a)


class HandedOff(Named):
    """A unit on the side."""

    key = Input(str)
    a = step(Work)
    unit = async_step(Work, after=a)
    two = step(LockedWork, seconds=0, after=a)
    z = step(Work, after=two)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Deploy code in which the reactor has not that step."""

    def deploy(reactor: Any, name: str) -> None:
        old = reactor.definition
        steps = {each: old.steps[each] for each in old.steps if each != name}
        changed = dataclasses.replace(old, steps=MappingProxyType(steps), fingerprint="another")
        for module in (tree, runner, finish):
            monkeypatch.setattr(module, "definition_of", lambda row: changed)

    return deploy


def _parked(reactor: Any, **inputs: Any) -> ExecutionHandle:
    handle: ExecutionHandle = reactor.enqueue(key="k", **inputs)
    with testing.hold("k"):
        deliver(handle.id, "a worker")
        assert handle.status == "parked"
    return handle


def _left(handle: ExecutionHandle) -> list[tuple[str, str]]:
    return [(each["step"], each["reason"]) for each in (handle.execution.failure or {})["rollback_failures"]]


def test_a_half_done_child_of_a_step_that_is_gone_is_set_aside_and_listed_when_it_is_cancelled(
    reactor_dispatches: Any, recorder: Recorder, without: Without
) -> None:
    handle = _parked(Composed)
    without(Composed, "child")
    drain()
    assert handle.status == "needs_definition"
    assert "has no step 'child' any more" in handle.execution.reason
    handle.cancel("it is not wanted any more")
    drain()
    assert handle.status == "failed"
    assert _left(handle) == [("child", "raised")]
    assert recorder.sequence() == ["run a", "run one", "undo a"]
    assert Execution.objects.get(parent=handle.id).status == "aborted"
    testing.assert_free("k")


def test_a_unit_of_a_step_that_is_gone_is_listed(reactor_dispatches: Any, recorder: Recorder, without: Without) -> None:
    handle = _parked(HandedOff)
    without(HandedOff, "unit")
    drain()
    assert handle.status == "needs_definition"
    handle.cancel()
    drain()
    assert handle.status == "failed"
    assert _left(handle) == [("unit", "raised")]


class _Waits(Step):
    """Waits until its unit has found out that its reactor is gone, then fails."""

    def run(self) -> None:
        """In this process: by another thread."""
        [unit] = Execution.objects.filter(parent__id=self.context.execution_id)
        Background(lambda: deliver(unit.id, "another worker")).result()
        unit.refresh_from_db()
        assert unit.status == "needs_definition"
        raise ValueError("it was told to fail")


class Lost(Named):
    """Its unit's reactor will be gone."""

    unit = async_step(Work)
    z = step(_Waits)


def test_a_unit_whose_reactor_is_gone_does_not_hold_up_the_rollback(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = units.definition_of

    def gone(name: str) -> Any:
        if units.MARK in name:
            raise UnknownReactor("it is gone", name=name)
        return known(name)

    handle = Lost.enqueue()
    monkeypatch.setattr(units, "definition_of", gone)
    Background(drain).result(10)
    assert handle.status == "failed"
    assert [each["reactor"] for each in (handle.execution.failure or {})["rollback_failures"]] == ["Lost.unit"]
