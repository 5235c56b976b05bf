"""The words for states: each has one meaning, fits its column, and belongs to one group."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest

from reactor_coord.engine import states
from reactor_coord.engine.states import (
    LEASED,
    SETTLED_STEPS,
    TERMINAL,
    WAITING,
    EventKind,
    ExecutionStatus,
    Mode,
    ParkKind,
    StepStatus,
    is_terminal,
)

VOCABULARIES: list[type[StrEnum]] = [ExecutionStatus, StepStatus, Mode, ParkKind, EventKind]


@pytest.mark.parametrize("words", VOCABULARIES)
def test_a_word_is_lower_case_and_fits_its_column(words: type[StrEnum]) -> None:
    for word in words:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", word.value) and len(word.value) <= 20


def test_every_status_of_an_execution_is_in_one_group() -> None:
    groups = [TERMINAL, WAITING, LEASED]
    for status in ExecutionStatus:
        stands = status in {ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION}
        assert sum(status in group for group in groups) + stands == 1, status


@pytest.mark.parametrize("status", list(ExecutionStatus))
def test_over_is_asked_of_a_word_or_of_its_text(status: ExecutionStatus) -> None:
    assert is_terminal(status) is is_terminal(status.value) is (status in TERMINAL)


def test_what_no_status_is_is_not_over() -> None:
    assert not is_terminal("")
    assert not is_terminal("invented")


def test_settled_steps_are_those_that_need_not_be_waited_for() -> None:
    assert frozenset({"succeeded", "skipped"}) == SETTLED_STEPS


def test_no_vocabulary_is_missing_here() -> None:
    found = {each for each in vars(states).values() if isinstance(each, type) and issubclass(each, StrEnum)}
    assert found - {StrEnum} == set(VOCABULARIES)
