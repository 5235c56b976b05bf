"""What is decided in one place is decided nowhere else: records are not read as dicts, and no pause is computed in passing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from reactor_coord.engine.records import Failure, ParkedHold, Record, RollbackFailure, StepError, Wait

PACKAGE = Path(__file__).resolve().parents[2] / "reactor_coord"
COLUMNS = {"waiting_on", "failure", "holds_kept", "rollback_failure", "error"}
OF_A_PLACE = {"reactor", "step", "primitive", "key", "fence"}
"""What also names a place or a hold in a message, a filter or an event."""

KINDS: list[type[Record]] = [Failure, ParkedHold, RollbackFailure, StepError, Wait]


def nodes(*, without: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module of the package, with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(without):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{name}:{getattr(node, 'lineno', 0)}", node


def is_column(node: ast.AST) -> bool:
    """`row.waiting_on`, or `(row.waiting_on or {})`."""
    if isinstance(node, ast.BoolOp):
        return any(is_column(each) for each in node.values)
    return isinstance(node, ast.Attribute) and node.attr in COLUMNS


def reads_a_column_as_a_dict(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return is_column(node.value)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "get" and is_column(called.value)


def test_no_module_reads_the_json_of_a_record_by_its_names() -> None:
    found = [
        place for place, node in nodes(without=("engine/records.py", "migrations/")) if reads_a_column_as_a_dict(node)
    ]
    assert not found, f"say row.waits_on, why_failed, left_undone, parked_holds or recorded_holds at {found}"


def names_of(node: ast.Dict) -> set[str]:
    return {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}


def is_record(node: ast.AST) -> bool:
    """A dict literal of three names and more, all of them fields of one record, and not only what names a place."""
    if (
        not isinstance(node, ast.Dict)
        or len(node.keys) < 3
        or any(not isinstance(key, ast.Constant) for key in node.keys)
    ):
        return False
    names = names_of(node)
    return not names <= OF_A_PLACE and any(names <= {each.name for each in fields(kind)} for kind in KINDS)


def test_no_module_writes_a_record_as_a_dict_literal() -> None:
    found = [place for place, node in nodes(without=("engine/records.py", "migrations/")) if is_record(node)]
    assert not found, f"make a record of engine/records.py at {found}"


def is_computed(node: ast.AST) -> bool:
    """A number, or arithmetic, or `min` and `max`: a pause that is decided where it is made."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
        return True
    return isinstance(node, ast.Constant | ast.BinOp)


def is_a_pause_of_its_own(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(called, ast.Attribute) or called.attr != "sleep":
        return False
    return any(is_computed(argument) for argument in node.args)


def test_no_module_but_one_computes_a_pause() -> None:
    """Not counted: what shows a page again every so often, and what is shipped for tests."""
    besides = (
        "engine/delays.py",
        "testing/",
        "management/commands/coordination.py",
        "management/commands/sweep_reactors.py",
    )
    found = [place for place, node in nodes(without=besides) if is_a_pause_of_its_own(node)]
    assert not found, f"a pause is a function of engine/delays.py; found at {found}"


def grows(node: ast.AST) -> bool:
    """`2.0 ** tries`: an exponential delay."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return False
    return not (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant))


def test_no_module_but_one_lets_a_delay_grow() -> None:
    found = [place for place, node in nodes(without=("engine/delays.py", "testing/")) if grows(node)]
    assert not found, f"a growing delay is a Backoff of engine/delays.py; found at {found}"
