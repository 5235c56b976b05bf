"""What is cleaned up and in which order: every state of one step, and any number of steps by property."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord.engine.rollback import Cleanup, StepState, rollback_order
from reactor_coord.engine.states import StepStatus

UNFINISHED = {"running", "waiting", "retrying", "failed", "dispatched"}


def expected_of(state: StepState) -> Cleanup | None:
    """In words: what succeeded is undone; what began and has no success is compensated, once; what is nested is gone into."""
    if state.status == "succeeded":
        return Cleanup.DESCEND if state.is_nested else Cleanup.UNDO
    if state.is_nested:
        return Cleanup.DESCEND if state.status in UNFINISHED else None
    is_open = state.status in {*UNFINISHED, "pending"}
    may_compensate = is_open and state.began and not state.is_reported
    return Cleanup.COMPENSATE if may_compensate else None


@pytest.mark.parametrize("status", list(StepStatus))
def test_every_state_of_one_step(status: StepStatus) -> None:
    for began, is_nested, is_reported in itertools.product([False, True], repeat=3):
        state = StepState("a", status, 1, began, is_nested, is_reported)
        cleanup = expected_of(state)
        assert rollback_order([state]) == ([("a", cleanup)] if cleanup is not None else []), state


states = st.builds(
    StepState,
    name=st.just(""),
    status=st.sampled_from(list(StepStatus)),
    completion_order=st.none(),
    began=st.booleans(),
    is_nested=st.booleans(),
    is_reported=st.booleans(),
)


@st.composite
def trees(draw: st.DrawFn) -> list[StepState]:
    """Steps with different names; the completed ones are numbered, in any order."""
    drawn = draw(st.lists(states, max_size=12))
    numbers = draw(st.permutations(range(1, len(drawn) + 1)))
    return [
        replace(state, name=f"s{at}", completion_order=number if state.status in {"succeeded", "skipped"} else None)
        for at, (state, number) in enumerate(zip(drawn, numbers, strict=True))
    ]


@given(steps=trees())
def test_each_step_is_cleaned_up_as_by_itself_and_once(steps: list[StepState]) -> None:
    wanted = {state.name: cleanup for state in steps if (cleanup := expected_of(state)) is not None}
    found = rollback_order(steps)
    assert len(found) == len(wanted) and dict(found) == wanted


@given(steps=trees())
def test_what_failed_comes_before_what_succeeded_and_the_newest_success_first(steps: list[StepState]) -> None:
    by_name = {state.name: state for state in steps}
    order = [by_name[name] for name, _ in rollback_order(steps)]
    done = [state.status == "succeeded" for state in order]
    assert done == sorted(done), "unfinished steps first"
    numbers = [state.completion_order or 0 for state in order if state.status == "succeeded"]
    assert numbers == sorted(numbers, reverse=True)


AFTERWARDS = {
    Cleanup.COMPENSATE: StepStatus.COMPENSATED,
    Cleanup.UNDO: StepStatus.UNDONE,
    Cleanup.DESCEND: StepStatus.UNDONE,
}


@given(steps=trees(), data=st.data())
def test_a_rollback_that_is_taken_up_again_does_what_is_left_and_nothing_twice(
    steps: list[StepState], data: st.DataObject
) -> None:
    order = rollback_order(steps)
    done = data.draw(st.integers(0, len(order)))
    statuses = {name: AFTERWARDS[cleanup] for name, cleanup in order[:done]}
    now = [replace(state, status=statuses.get(state.name, state.status)) for state in steps]
    assert rollback_order(now) == order[done:]


@given(steps=trees())
def test_a_cleanup_that_could_not_be_done_is_not_tried_again_by_itself(steps: list[StepState]) -> None:
    """It is reported: an undo as `undo_failed`, a compensate by its report alone. An operator may have it tried again."""
    order = dict(rollback_order(steps))
    reported = [
        replace(
            state,
            is_reported=True,
            status=StepStatus.UNDO_FAILED if order.get(state.name) == Cleanup.UNDO else state.status,
        )
        for state in steps
    ]
    left = {cleanup for _, cleanup in rollback_order(reported)}
    assert left <= {Cleanup.DESCEND}


def test_completions_without_a_number_come_last() -> None:
    steps = [StepState("old", StepStatus.SUCCEEDED), StepState("new", StepStatus.SUCCEEDED, 3)]
    assert [name for name, _ in rollback_order(steps)] == ["new", "old"]
