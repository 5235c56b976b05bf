"""The table of statuses: every pair of a status and a move is either defined, with all that it writes, or refused."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

import reactor_coord
from reactor_coord.engine import transitions
from reactor_coord.engine.records import Failure, Wait
from reactor_coord.engine.states import LEASED, TERMINAL, ExecutionStatus, ParkKind, StepStatus
from reactor_coord.engine.step_transitions import OPEN, OUTCOMES, STEP_TABLE, StepMove, step_target_of
from reactor_coord.engine.transitions import (
    TABLE,
    UNDER_LEASE,
    ImpossibleMove,
    Move,
    Transition,
    is_possible,
    sources_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)

EVERY = {
    Move.CLAIM: transitions.claim("token", NOW, "host:1"),
    Move.PUT_BACK: transitions.put_back(),
    Move.SET_ASIDE: transitions.set_aside("gone"),
    Move.PARK: transitions.park(ParkKind.CONTENTION, Wait(key="a"), NOW, ()),
    Move.PAUSE: transitions.pause(Wait(step="ask"), None),
    Move.HAND_OVER: transitions.hand_over(NOW, ()),
    Move.BEGIN_ROLLBACK: transitions.begin_rollback(Failure(step="charge")),
    Move.COMPLETE: transitions.complete(NOW, 1),
    Move.SKIP: transitions.complete_at_once(NOW, 1, "where"),
    Move.HALT: transitions.halt(NOW, 1, "enough"),
    Move.FAIL: transitions.fail(NOW, Failure(step="charge"), ""),
    Move.CANCEL: transitions.cancel(NOW, "no"),
    Move.REVERT: transitions.revert(NOW, "no"),
    Move.LOSE_WORKER: transitions.lose_worker(NOW, 1),
    Move.ABORT: transitions.abort(NOW, 1, "died"),
    Move.DEFER: transitions.defer(NOW, Wait(), 0),
    Move.ANSWER: transitions.answer(NOW),
    Move.EXPIRE: transitions.expire(),
    Move.REPEAT: transitions.repeat(NOW),
    Move.CANCEL_UNBEGUN: transitions.cancel_unbegun(NOW, "no"),
    Move.CANCEL_BEGUN: transitions.cancel_begun(NOW, "no"),
    Move.STOP: transitions.stop(NOW, "no"),
    Move.UNDO: transitions.undo(NOW, "no"),
    Move.UNDO_AGAIN: transitions.undo_again(NOW, Failure()),
    Move.CLOSE_ROLLBACK: transitions.close_rollback(Failure(closed_at=1.0), "dealt with"),
    Move.RESUME: transitions.resume(NOW, turned_back=False),
    Move.RESUME_ROLLBACK: transitions.resume(NOW, turned_back=True),
    Move.GO_ON: transitions.go_on(turned_back=False),
    Move.GO_ON_BACK: transitions.go_on(turned_back=True),
    Move.CLOSE_FAILED: transitions.close(NOW, failed=True),
    Move.CLOSE_CANCELLED: transitions.close(NOW, failed=False),
    Move.CLOSE_REVERTED: transitions.close_reverted(NOW),
}
"""Each move, made as the product makes it."""

PAIRS = [(status, move) for status in ExecutionStatus for move in Move]


def test_every_move_is_made_by_one_function() -> None:
    assert {made.move for made in EVERY.values()} == set(Move) == set(TABLE)
    assert all(made.move == move for move, made in EVERY.items())


@pytest.mark.parametrize(("status", "move"), PAIRS, ids=lambda each: each.value)
def test_a_status_and_a_move_are_defined_or_refused(status: ExecutionStatus, move: Move) -> None:
    if not transitions.is_possible(status, move):
        with pytest.raises(ImpossibleMove, match=status.value):
            EVERY[move].changes(status)
        return
    changes = EVERY[move].changes(status)
    target = transitions.target_of(status, move)
    assert changes["status"] == target
    if move not in UNDER_LEASE:
        assert (changes["lease_token"], changes["lease_expires_at"]) == ("", None)
    if target in TERMINAL:
        assert changes["resume_at"] is None
        assert (changes["park_kind"], changes["waiting_on"], changes["holds_kept"]) == ("", None, [])
        assert status in TERMINAL or changes["finished_at"] is not None, "what is over keeps the time of its end"
    else:
        assert changes["finished_at"] is None


@pytest.mark.parametrize("move", Move, ids=lambda each: each.value)
def test_a_move_writes_the_same_columns_from_every_status(move: Move) -> None:
    """One UPDATE with one set of columns moves all the rows of a query."""
    common = EVERY[move].columns_of_all()
    for status in TABLE[move]:
        changes = EVERY[move].changes(status)
        del changes["status"]
        assert changes == common


def test_a_process_keeps_its_lease_just_where_it_goes_on_working() -> None:
    assert {transitions.target_of(status, move) for move in UNDER_LEASE for status in TABLE[move]} == LEASED


def test_no_status_is_a_dead_end_but_a_wholly_undone_one() -> None:
    """Out of every status but `cancelled` and `reverted` there is a move by the engine or an operator."""
    own = set(Move) - {Move.CLOSE_CANCELLED, Move.CLOSE_FAILED, Move.CLOSE_REVERTED, Move.GO_ON, Move.GO_ON_BACK}
    stuck = {status for status in ExecutionStatus if not any(status in TABLE[move] for move in own)}
    assert stuck == {ExecutionStatus.CANCELLED, ExecutionStatus.REVERTED}


def test_what_is_over_is_moved_by_an_operator_alone() -> None:
    by_operators = {Move.UNDO, Move.UNDO_AGAIN, Move.CLOSE_ROLLBACK, Move.RESUME, Move.RESUME_ROLLBACK}
    for_children = {Move.GO_ON, Move.GO_ON_BACK, Move.CLOSE_CANCELLED, Move.CLOSE_FAILED, Move.CLOSE_REVERTED}
    for status in TERMINAL:
        assert {move for move in Move if status in TABLE[move]} <= by_operators | for_children


def test_a_child_follows_its_root_without_touching_its_other_columns() -> None:
    assert Transition(Move.PARK).changes("running") == {
        "status": "parked",
        "lease_token": "",
        "lease_expires_at": None,
        "finished_at": None,
    }


@pytest.mark.parametrize("status", StepStatus, ids=lambda each: each.value)
@pytest.mark.parametrize("move", StepMove, ids=lambda each: each.value)
def test_a_step_status_and_a_move_are_defined_or_refused(status: StepStatus, move: StepMove) -> None:
    if status in STEP_TABLE[move]:
        assert step_target_of(status, move) == STEP_TABLE[move][status]
    else:
        with pytest.raises(ImpossibleMove, match=status.value):
            step_target_of(status, move)


def test_every_outcome_of_an_attempt_is_a_move_from_every_open_step() -> None:
    for status, move in OUTCOMES.items():
        assert all(STEP_TABLE[move][each] == status for each in OPEN)


def test_an_undone_step_is_done_with() -> None:
    for status in (StepStatus.UNDONE, StepStatus.COMPENSATED, StepStatus.SKIPPED):
        assert [move for move in StepMove if status in STEP_TABLE[move]] == []


# ---- one writer

WRITERS = {"engine/transitions.py", "storage/transitions.py"}
NEW_ROWS = {"Execution", "StepRun", "NewExecution"}


def test_one_module_writes_statuses() -> None:
    """Elsewhere a status is neither assigned nor passed to an update: new rows and filters alone name one."""
    root = Path(reactor_coord.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if str(path.relative_to(root)) not in WRITERS and "testing" not in path.parts and "migrations" not in path.parts
        for line in _writes_a_status(ast.parse(path.read_text("utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize("move", list(Move))
def test_the_sources_of_a_move_are_the_statuses_in_which_it_is_possible(move: Move) -> None:
    assert sources_of(move) == {status for status in ExecutionStatus if is_possible(status, move)}


def test_a_child_that_nothing_goes_on_with_is_aborted_and_nothing_else_of_it_changes() -> None:
    changes = transitions.abort_child(NOW).changes("running")
    assert (changes["status"], changes["finished_at"]) == ("aborted", NOW)
    assert "reason" not in changes and "workers_lost" not in changes


def _writes_a_status(tree: ast.AST) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            lines += [
                each.lineno
                for target in targets
                for each in ast.walk(target)
                if isinstance(each, ast.Attribute) and each.attr == "status" and isinstance(each.ctx, ast.Store)
            ]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in {"update", "change", "bulk_update"} and any(each.arg == "status" for each in node.keywords):
                lines.append(node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            lines += [
                node.lineno for each in node.args[1:2] if isinstance(each, ast.Constant) and each.value == "status"
            ]
    return lines
