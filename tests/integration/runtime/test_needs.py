"""Below a step that was skipped: what can do without its value reads `None`, what needs it is skipped and says so."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Input,
    Reactor,
    Step,
    async_reactor,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    testing,
    with_lock,
)
from reactor_coord.models import Execution, StepRun
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)
WAYS = pytest.mark.parametrize("way", ["in process", "in a worker"])


def ended(reactor: type[Reactor], way: str, **inputs: Any) -> Outcome:
    if way == "in process":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1)


class Source(Step):
    """Has what the others need."""

    def run(self) -> dict[str, Any]:
        return {"key": "k", "items": ["x", "y"], "number": 3}


def never(**arguments: Any) -> bool:
    return False


class Required(Step):
    """Cannot do without its number."""

    number = Input(int)

    def run(self) -> int:
        return self.number + 1


class Optional(Step):
    """Can."""

    number = Input(int | None, default=None)

    def run(self) -> str:
        return f"got {self.number}"


class Child(Reactor):
    """Requires a number."""

    number = Input(int)
    only = step(Required, number=number)


class Undemanding(Reactor):
    """Takes what comes."""

    number = Input(int | None, default=None)
    only = step(Optional, number=number)


@with_lock("{number}", ttl=5)
class KeyedChild(Reactor):
    """Its own key is made of what it can do without."""

    number = Input(int | None, default=None)
    only = step(Optional, number=number)


class Below(Named):
    """Everything that may stand below a skipped step."""

    source = step(Source, where=never)
    mapped = map_each(Work, over=source["items"], name=element())
    numbered = map_each(Required, over=["a"], number=source["number"])
    composed = compose(Child, number=source["number"])
    keyed = compose(KeyedChild, number=source["number"])
    beside = async_step(Required, number=source["number"])
    reactor_beside = async_reactor(Child, number=source["number"])
    asked = interrupt(correlation_id=source["key"], payload={"ok": bool})
    locked = step(LockedWork, key=source["key"])
    further = map_each(Work, over=mapped, name=element())
    reads_none = step(Optional, number=source["number"])
    takes_none = compose(Undemanding, number=source["number"])
    last = step(Work, after=[reads_none, further])
    returns = reads_none


NEEDS_SOURCE = ["mapped", "numbered", "composed", "keyed", "beside", "reactor_beside", "asked", "locked"]


@WAYS
def test_u103_what_needs_a_skipped_step_is_skipped_with_the_reason_and_the_rest_reads_none(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Below, way)
    assert outcome.status == "completed", outcome.failure
    assert outcome.value == "got None"
    runs = {run.step: run for run in StepRun.objects.filter(execution=outcome.execution)}
    told = {name: (run.status, run.reason) for name, run in runs.items() if name in NEEDS_SOURCE}
    assert set(told.values()) == {("skipped", "needs source, which was skipped")}, told
    assert (runs["further"].status, runs["further"].reason) == ("skipped", "needs mapped, which was skipped")
    assert runs["source"].reason == "where"
    assert recorder.sequence() == ["run last"]
    assert outcome.results["takes_none"] == "got None"


def test_u103_a_unit_that_can_do_without_the_value_runs(reactor_dispatches: Any) -> None:
    class Beside(Named):
        source = step(Source, where=never)
        unit = async_step(Optional, number=source["number"])
        returns = unit

    handle = Beside.enqueue()
    testing.drain()
    assert handle.wait(1).value == "got None"


@WAYS
def test_u103_a_step_that_is_skipped_with_a_value_is_needed_by_none_in_vain(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(SkippedWithAValue, way)
    assert (outcome.status, outcome.value) == ("completed", 4)
    assert recorder.count("run mapped") == 2


class SkipsWithAValue(Step):
    """What it would have found is known."""

    def run(self) -> None:
        self.skip({"items": ["x", "y"], "number": 3}, reason="known")


class SkippedWithAValue(Named):
    """Below it, all run."""

    source = step(SkipsWithAValue)
    mapped = map_each(Work, over=source["items"], name=element())
    composed = compose(Child, number=source["number"])
    returns = composed


def test_u103_two_lost_needs_are_both_named(recorder: Recorder) -> None:
    class Both(Named):
        one = step(Source, where=never)
        two = step(Source, where=never)
        child = compose(Child, number=[one, two])

    with_two = Both.run()
    run = StepRun.objects.get(execution=with_two.execution, step="child")
    assert (run.status, run.reason) == ("skipped", "needs one, two, which were skipped")
    assert not Execution.objects.filter(parent=with_two.execution).exists()
