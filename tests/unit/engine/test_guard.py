"""What the answer of a guard means: every answer there is, returned or said, and every one there is not."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from reactor_coord.declare.context import Verdicts
from reactor_coord.declare.retry import Retry
from reactor_coord.engine.guard import ask_guard, ask_where, refusal_of_guard, refusal_of_where
from reactor_coord.engine.settlement import settle
from reactor_coord.engine.states import StepStatus
from reactor_coord.errors import GuardError
from reactor_coord.results import Decided, Failure, Halt, Result, Skipped, Success

PASSES = [None, True, Success(), Success(None)]
REFUSES: list[tuple[Result, Result]] = [
    (Failure("no"), Failure("no", retryable=False)),
    (Failure("no", retryable=False), Failure("no", retryable=False)),
    (Skipped(), Skipped()),
    (Skipped(3, "why"), Skipped(3, "why")),
    (Halt(), Halt()),
    (Halt(3, "why"), Halt(3, "why")),
]
UNCLEAR = [False, 0, 1, "", "no", [], {}, object(), Success, Failure, Skipped, Halt, ValueError("no"), NotImplemented]
VALUES = [False, True, 0, "", "receipt", {"a": 1}]


@pytest.mark.parametrize("answer", PASSES, ids=repr)
def test_u86_a_guard_passes_on_nothing_true_and_a_success_without_a_value(answer: object) -> None:
    assert refusal_of_guard(answer, "Charge.guard") is None


def test_u86_a_guard_that_succeeds_from_any_depth_has_passed() -> None:
    assert ask_guard(lambda: Verdicts().succeed(), "Charge.guard") is None


@pytest.mark.parametrize(("answer", "end"), REFUSES, ids=repr)
def test_u87_a_verdict_ends_the_step_returned_or_said_and_its_failure_is_never_retried(
    answer: Result, end: Result
) -> None:
    def said() -> NoReturn:
        raise Decided(answer)

    assert ask_guard(lambda: answer, "Charge.guard") == end
    assert ask_guard(said, "Charge.guard") == end


@pytest.mark.parametrize("answer", UNCLEAR, ids=lambda answer: type(answer).__name__)
def test_u87_any_other_answer_fails_the_step_naming_the_guard(answer: object) -> None:
    refusal = refusal_of_guard(answer, "Charge.guard")
    assert isinstance(refusal, Failure)
    assert isinstance(refusal.error, GuardError)
    assert refusal.error.guard == "Charge.guard"
    assert not refusal.retryable
    for part in ("Charge.guard returned", "body was not run", "True", "self.succeed()", "self.skip(", "Failure"):
        assert part in str(refusal.error)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_u86_a_success_with_a_value_is_refused_with_the_advice_to_skip(value: object) -> None:
    refusal = refusal_of_guard(Success(value), "Charge.guard")
    assert isinstance(refusal, Failure)
    assert isinstance(refusal.error, GuardError)
    assert "self.skip(value=...), which is never undone" in str(refusal.error)


def test_the_message_names_the_type_of_an_answer_and_never_its_value() -> None:
    for answer in ("4111 1111", Success("4111 1111")):
        refusal = refusal_of_guard(answer, "Charge.guard")
        assert isinstance(refusal, Failure)
        assert "4111" not in str(refusal.error)
        assert "type str" in str(refusal.error)


def test_what_a_guard_raises_passes_through() -> None:
    def broken() -> None:
        raise LookupError("no such account")

    with pytest.raises(LookupError, match="no such account"):
        ask_guard(broken, "Charge.guard")


WHERE: list[tuple[Any, Result | None]] = [
    (True, None),
    (1, None),
    ([0], None),
    (Success(), None),
    (False, Skipped(reason="where")),
    (None, Skipped(reason="where")),
    ([], Skipped(reason="where")),
    (Skipped(3, "why"), Skipped(3, "why")),
    (Halt(reason="why"), Halt(reason="why")),
    (Failure("no"), Failure("no", retryable=False)),
]


@pytest.mark.parametrize(("answer", "end"), WHERE, ids=repr)
def test_a_where_counts_as_true_or_false_and_a_verdict_as_in_a_guard(answer: Any, end: Result | None) -> None:
    assert ask_where(lambda: answer, "Charge.where") == end
    assert refusal_of_where(answer, "Charge.where") == end


def test_a_where_that_succeeds_lets_the_step_run_and_with_a_value_fails_it() -> None:
    assert ask_where(lambda: Verdicts().succeed(), "Charge.where") is None
    refusal = ask_where(lambda: Verdicts().succeed(3), "Charge.where")
    assert isinstance(refusal, Failure)
    assert "Charge.where succeeded with a value" in str(refusal.error)


@pytest.mark.parametrize("retry", [None, Retry(max_attempts=3)])
@pytest.mark.parametrize(
    ("refusal", "status", "halts"),
    [
        (Failure("no"), StepStatus.FAILED, False),
        (Skipped(3), StepStatus.SKIPPED, False),
        (Halt(3), StepStatus.SKIPPED, True),
    ],
    ids=repr,
)
def test_u86_a_step_that_its_guard_ended_never_began_and_is_never_one_that_succeeded(
    refusal: Result, status: StepStatus, halts: bool, retry: Retry | None
) -> None:
    settlement = settle(refusal, began=False, retry=retry, attempts=0, chance=0.5)
    assert (settlement.status, settlement.halts, settlement.began) == (status, halts, False)


def test_a_body_that_halts_has_succeeded_and_can_be_undone() -> None:
    halted = settle(Halt(3), began=True, retry=None, attempts=1, chance=0.5)
    assert (halted.status, halted.halts) == (StepStatus.SUCCEEDED, True)
