"""Which step is next: for every graph of three steps in every combination of statuses, and for larger ones by property."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.engine.plan import first_dispatched, is_last, is_past_background, next_step
from reactor_coord.engine.states import StepStatus

from .definitions import a_reactor

SETTLED = {StepStatus.SUCCEEDED, StepStatus.SKIPPED}
Edges = dict[str, frozenset[str]]


def graphs_of(names: str) -> list[Edges]:
    """Every graph in which a step depends on any of those before it."""
    choices = [subsets_of(names[:at]) for at in range(len(names))]
    return [dict(zip(names, after, strict=True)) for after in itertools.product(*choices)]


def subsets_of(names: str) -> list[frozenset[str]]:
    return [frozenset(some) for size in range(len(names) + 1) for some in itertools.combinations(names, size)]


def name_of(step: object) -> str | None:
    return getattr(step, "name", None)


def _named(edges: Mapping[str, frozenset[str]]) -> str:
    """The same name in every process: a set has no order of its own."""
    return " ".join(f"{name}:{''.join(sorted(needs))}" for name, needs in edges.items())


@pytest.mark.parametrize("edges", graphs_of("abc"), ids=_named)
def test_next_is_the_first_open_step_whose_dependencies_are_settled(edges: Edges) -> None:
    definition = a_reactor(edges)
    for combination in itertools.product([None, *StepStatus], repeat=3):
        statuses = {name: status for name, status in zip(edges, combination, strict=True) if status is not None}
        settled = {name for name, status in statuses.items() if status in SETTLED}
        fitting = [
            name
            for name, after in edges.items()
            if statuses.get(name) not in {*SETTLED, StepStatus.DISPATCHED} and after <= settled
        ]
        assert name_of(next_step(definition, statuses)) == (fitting[0] if fitting else None), statuses


@pytest.mark.parametrize("edges", graphs_of("abc"), ids=_named)
def test_a_step_is_the_last_when_all_others_are_settled(edges: Edges) -> None:
    definition = a_reactor(edges)
    for combination in itertools.product([None, *StepStatus], repeat=3):
        statuses = {name: status for name, status in zip(edges, combination, strict=True) if status is not None}
        for name in edges:
            others = [statuses.get(other) for other in edges if other != name]
            assert is_last(definition, statuses, name) is all(status in SETTLED for status in others)


@st.composite
def definitions(draw: st.DrawFn) -> ReactorDefinition:
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    edges = {
        name: frozenset(draw(st.sets(st.sampled_from(names[:at]), max_size=3)) if at else ())
        for at, name in enumerate(names)
    }
    return a_reactor(edges, detached=frozenset(draw(st.sets(st.sampled_from(names)))))


@given(definition=definitions(), data=st.data())
def test_whatever_becomes_of_the_steps_each_runs_once_and_after_what_it_needs(
    definition: ReactorDefinition, data: st.DataObject
) -> None:
    """Steps succeed, are skipped, or are handed off; handed-off ones end when nothing else is left to do."""
    statuses: dict[str, StepStatus] = {}
    ran: list[str] = []
    ends = st.sampled_from([StepStatus.SUCCEEDED, StepStatus.SKIPPED, StepStatus.DISPATCHED])
    while True:
        step = next_step(definition, statuses)
        if step is None:
            out = [name for name, status in statuses.items() if status == StepStatus.DISPATCHED]
            if not out:
                break
            statuses[data.draw(st.sampled_from(out))] = StepStatus.SUCCEEDED
            continue
        assert step.name not in ran, "no step runs twice"
        assert all(statuses[name] in SETTLED for name in step.depends_on)
        ran.append(step.name)
        statuses[step.name] = data.draw(ends)
    assert sorted(ran) == sorted(definition.steps)
    assert all(status in SETTLED for status in statuses.values())


@given(definition=definitions(), data=st.data())
def test_awaited_is_the_first_handed_off_step_that_is_not_detached(
    definition: ReactorDefinition, data: st.DataObject
) -> None:
    statuses = {name: data.draw(st.sampled_from(list(StepStatus))) for name in definition.steps}
    awaited = [
        name
        for name, step in definition.steps.items()
        if statuses[name] == StepStatus.DISPATCHED and not step.options["detach"]
    ]
    assert name_of(first_dispatched(definition, statuses)) == (awaited[0] if awaited else None)


LINE: Edges = {"a": frozenset(), "b": frozenset("a"), "c": frozenset("b")}


@pytest.mark.parametrize(
    "after, before, statuses, step, expected",
    [
        (None, None, {"a": StepStatus.SUCCEEDED, "b": StepStatus.SUCCEEDED}, "c", False),
        ("a", None, {}, "a", False),
        ("a", None, {"a": StepStatus.SUCCEEDED}, "b", True),
        ("a", None, {"a": StepStatus.SKIPPED}, "b", True),
        ("a", None, {"a": StepStatus.RETRYING}, "a", False),
        (None, "b", {}, "a", False),
        (None, "b", {"a": StepStatus.SUCCEEDED}, "b", True),
        (None, "b", {"a": StepStatus.SUCCEEDED, "b": StepStatus.SUCCEEDED}, "c", True),
        (None, "a", {}, "a", True),
        ("c", "c", {"a": StepStatus.SUCCEEDED}, "b", False),
    ],
)
def test_a_worker_takes_over_behind_the_step_named_or_before_it(
    after: str | None, before: str | None, statuses: Mapping[str, StepStatus], step: str, expected: bool
) -> None:
    definition = a_reactor(LINE, background_after=after, background_before=before)
    assert is_past_background(definition, statuses, definition.steps[step]) is expected
