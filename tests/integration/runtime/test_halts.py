"""How far a halt reaches: a body's stops the whole tree from any depth; a reactor that is not let in stops only itself."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Input,
    Reactor,
    Step,
    async_reactor,
    compose,
    element,
    map_each,
    step,
    testing,
    with_lock,
    with_period,
)
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, StepRun
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

DECADE = 10 * 365 * 86_400
WAYS = pytest.mark.parametrize("way", ["in process", "in a worker"])


def ended(reactor: type[Reactor], way: str, **inputs: Any) -> Outcome:
    if way == "in process":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1)


@with_lock("inner", ttl=5)
class Stops(Step):
    """Halts in its body or in its guard, with a value."""

    where_it_stops = Input(str, default="body")

    def guard(self) -> None:
        if self.where_it_stops == "guard":
            self.halt({"stopped": 1}, reason="enough")

    def run(self) -> None:
        self.halt({"stopped": 1}, reason="enough")


class Calls(Step):
    """Calls it, at a depth, and would swallow an ordinary exception."""

    depth = Input(int, default=1)
    where_it_stops = Input(str, default="body")

    def run(self) -> str:
        try:
            if self.depth > 1:
                Calls.call(context=self.context, depth=self.depth - 1, where_it_stops=self.where_it_stops)
            else:
                Stops.call(context=self.context, where_it_stops=self.where_it_stops)
        except Exception:
            return "swallowed"
        return "went on"


class Calling(Named):
    """A step before, one that calls, one behind."""

    depth = Input(int, default=1)
    where_it_stops = Input(str, default="body")
    before = step(Work)
    calling = step(Calls, after=before)
    behind = step(Work, after=calling)


@WAYS
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("where_it_stops", ["body", "guard"])
def test_u104_a_halt_in_a_step_called_inside_a_body_stops_the_tree(
    way: str, depth: int, where_it_stops: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Calling, way, depth=depth, where_it_stops=where_it_stops)
    assert (outcome.status, outcome.value, outcome.execution.reason) == ("halted", {"stopped": 1}, "enough")
    assert recorder.sequence() == ["run before"]
    assert inspect.look("inner").hold is None


def test_u104_outside_any_body_a_call_that_halts_answers_its_value() -> None:
    assert Stops.call() == {"stopped": 1}


class StopsAt(Step):
    """The one element that has seen enough."""

    name = Input(str)

    def run(self) -> str:
        if self.name == "y":
            self.halt({"found": self.name}, reason="found")
        return self.name


class Searching(Named):
    """A map of which one element halts."""

    each = map_each(StopsAt, over=["x", "y"], name=element())
    behind = step(Work, after=each)


@WAYS
def test_u104_the_value_with_which_an_element_halts_is_the_executions(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Searching, way)
    assert (outcome.status, outcome.value, outcome.execution.reason) == ("halted", {"found": "y"}, "found")
    assert recorder.sequence() == []


@with_period("{key}", every=DECADE)
class OnceOnly(Named):
    """Once per key, at its own door."""

    key = Input(str)
    stops = Input(bool, default=False)
    billed = step(Work)

    @step(stops=stops, after=billed)
    def stop(stops: bool, context: Any) -> None:
        if stops:
            context.halt("half-way", reason="enough")


class Composed(Named):
    """It is composed, and something follows."""

    key = Input(str)
    stops = Input(bool, default=False)
    billing = compose(OnceOnly)

    @step(value=billing, after=billing)
    def last(value: Any) -> Any:
        return ["last", value]


class Mapped(Named):
    """It is an element."""

    keys = Input(list[str])
    billing = map_each(OnceOnly, over=keys, key=element())
    last = step(Work, after=billing)

    returns = billing


class Beside(Named):
    """It runs on the side."""

    key = Input(str)
    billing = async_reactor(OnceOnly)

    @step(value=billing)
    def last(value: Any) -> Any:
        return ["last", value]


def run_of(outcome: Outcome, step_name: str) -> StepRun:
    return StepRun.objects.get(execution=outcome.execution, step=step_name)


@WAYS
def test_u108_a_composed_reactor_refused_at_its_own_door_is_a_skipped_step(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    ended(OnceOnly, way, key="k").unwrap()
    outcome = ended(Composed, way, key="k")
    assert (outcome.status, outcome.value) == ("completed", ["last", None])
    run = run_of(outcome, "billing")
    assert (run.status, run.reason) == ("skipped", "period")
    child = Execution.objects.get(parent=outcome.execution)
    assert (child.status, child.reason) == ("halted", "period")
    assert recorder.count("run billed") == 1


@WAYS
def test_u108_a_body_of_a_composed_reactor_that_halts_stops_the_tree(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Composed, way, key="k", stops=True)
    assert (outcome.status, outcome.value) == ("halted", "half-way")


@WAYS
def test_an_element_whose_reactor_is_refused_at_its_own_door_is_left_out_and_the_others_go_on(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    ended(OnceOnly, way, key="y").unwrap()
    outcome = ended(Mapped, way, keys=["x", "y", "z"])
    assert outcome.status == "completed"
    values = outcome.unwrap()
    assert len(values) == 3
    assert values[1] is None
    assert recorder.count("run billed") == 3
    assert recorder.count("run last") == 1


def test_an_async_reactor_refused_at_its_own_door_is_a_skipped_step(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    ended(OnceOnly, "in process", key="k").unwrap()
    handle = Beside.enqueue(key="k")
    testing.drain()
    outcome = handle.wait(1)
    assert (outcome.status, outcome.value) == ("completed", ["last", None])
    assert run_of(outcome, "billing").status == "skipped"


def test_a_composed_reactor_that_is_refused_undoes_nothing_when_a_later_step_fails(recorder: Recorder) -> None:
    class Then(Named):
        key = Input(str)
        billing = compose(OnceOnly)
        last = step(Work, after=billing)

    OnceOnly.run(key="k").unwrap()
    outcome = Then.run(key="k", fail_at="last")
    assert outcome.failed
    assert recorder.sequence() == ["run billed", "run last", "comp last"]
