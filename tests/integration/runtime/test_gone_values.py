"""A value that cannot be carried or read, between an execution and its units: it fails what meets it, and is undone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from reactor_coord import Input, Reactor, Step, async_step, element, map_each, step
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.live.models import Posting
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class _Posts(Step):
    """Its value is a row."""

    def run(self) -> Posting:
        """Which will be deleted."""
        return Posting.objects.create(account="a", amount=1, execution=uuid4())


class OfUnit(Named):
    """Reads a unit's value."""

    before = step(Work)
    posted = async_step(_Posts, after=before)
    behind = step(Work, after=posted)


class OfElements(Named):
    """Reads the values of a map."""

    items = Input(list[int], default=[1, 2])
    before = step(Work)
    posted = map_each(_Posts, over=items, after=before)
    behind = step(Work, after=posted)


class Strange(Reactor):
    """Returns what cannot be stored."""

    item = Input(int)
    work = step(Work)
    returns = work.map(lambda value: object())


class OfStrange(Named):
    """Each element ends in that."""

    items = Input(list[int], default=[1, 2])
    before = step(Work)
    strange = map_each(Strange, over=items, item=element(), after=before)


@pytest.mark.parametrize("reactor", [OfUnit, OfElements])
def test_a_units_value_that_is_gone_when_it_is_read_fails_its_reader(
    reactor_dispatches: Any, recorder: Recorder, reactor: Any
) -> None:
    handle = reactor.enqueue()
    deliver(handle.id, "a worker")
    for unit in Execution.objects.filter(parent=handle.id):
        deliver(unit.id, "a worker")
    Posting.objects.all().delete()
    drain(3)
    failure = handle.execution.failure or {}
    assert (handle.status, failure.get("error_type")) == ("failed", "CodecError")
    assert recorder.sequence() == ["run before", "undo before"]


@pytest.mark.parametrize("how", ["here", "in a worker"])
def test_an_elements_value_that_cannot_be_stored_fails_the_map(
    reactor_dispatches: Any, recorder: Recorder, how: str
) -> None:
    if how == "here":
        row = OfStrange.run().execution
    else:
        handle = OfStrange.enqueue()
        drain(3)
        row = handle.execution
    assert (row.status, (row.failure or {}).get("error_type")) == ("failed", "CodecError")
    assert recorder.sequence()[0] == "run before"
    assert recorder.sequence()[-1] == "undo before"
    assert recorder.count("run work") == recorder.count("undo work")
