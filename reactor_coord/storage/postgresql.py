"""A checkpoint as one statement, for PostgreSQL. Its SQL is in `sql/checkpoint_postgresql.sql`; here its parts are put together.

The parameters of rows are one JSON array a table, so the text of a statement depends only on which parts and columns it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from uuid import UUID

from django.db import connections, models

from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage.columns import execution_field, row_values
from reactor_coord.storage.preparing import preparing_cursor

_GENERATED = frozenset({"id"})
_STEP_RUN_KEY = frozenset({"execution_id", "step"})


def write(
    using: str,
    root_id: UUID,
    token: str,
    changes: Mapping[UUID, Mapping[str, Any]],
    new_executions: Sequence[Execution],
    step_runs: Sequence[StepRun],
    trace: Sequence[TraceEvent],
) -> tuple[bool, bool] | None:
    """Write it all if `token` is the root's lease: cancel and wake as the row had them, or nothing when it is not."""
    statement = _Statement(using)
    statement.guard(root_id, token, changes[root_id])
    for number, (execution_id, columns) in enumerate(changes.items()):
        if execution_id != root_id:
            statement.update(f"member_{number}", execution_id, columns)
    statement.rows("insert", Execution, new_executions)
    statement.rows("upsert", StepRun, step_runs)
    statement.rows("insert", TraceEvent, trace)
    return statement.run()


class _Statement:
    def __init__(self, using: str) -> None:
        self.using = using
        self.parts: list[str] = []
        self.parameters: list[Any] = []

    def guard(self, root_id: UUID, token: str, changes: Mapping[str, Any]) -> None:
        name, key, values = "guard", [root_id, token], list(self._prepared(changes))
        if "wake_requested" in changes:
            name, self.parameters = "guard_of_park", [*key, *values]
        else:
            self.parameters = [*values, *key]
        self.parts.append(part(name).format(execution=_table(Execution), changes=_assignments(changes)))

    def update(self, name: str, execution_id: UUID, changes: Mapping[str, Any]) -> None:
        self.parameters += [*self._prepared(changes), execution_id]
        text = part("update").format(name=name, execution=_table(Execution), changes=_assignments(changes))
        self.parts.append(text)

    def rows(self, how: str, model: type[models.Model], rows: Sequence[models.Model]) -> None:
        if not rows:
            return
        self.parts.append(_row_part(how, model, self.using))
        without = frozenset() if model is Execution else _GENERATED
        self.parameters.append(_JSON.encode([row_values(each, without=without) for each in rows]))

    def run(self) -> tuple[bool, bool] | None:
        with preparing_cursor(connections[self.using]) as cursor:
            cursor.execute("".join([*self.parts, part("answer")]), self.parameters)
            answer: tuple[bool, bool] | None = cursor.fetchone()
        return answer

    def _prepared(self, changes: Mapping[str, Any]) -> Iterable[Any]:
        connection = connections[self.using]
        for name, value in changes.items():
            yield execution_field(name).get_db_prep_save(value, connection)


@cache
def part(name: str) -> str:
    """A part of the SQL file, without its comments."""
    text = (files("reactor_coord.storage") / "sql" / "checkpoint_postgresql.sql").read_text("utf-8")
    found = re.search(rf"^-- part: {name}$(.*?)(?=^-- part: |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise LookupError(name)
    return re.sub(r"^--.*\n", "", found[1], flags=re.MULTILINE).strip() + "\n"


@cache
def _row_part(how: str, model: type[models.Model], using: str) -> str:
    connection = connections[using]
    fields = [each for each in model._meta.concrete_fields if model is Execution or each.name not in _GENERATED]
    names = [str(each.column) for each in fields]
    return part(how).format(
        name=f"{how}_{model._meta.model_name}",
        table=_table(model),
        columns=", ".join(names),
        picked=", ".join(f"given.{name}" for name in names),
        types=", ".join(f"{each.column} {each.db_type(connection)}" for each in fields),
        overwrites=", ".join(f"{name} = EXCLUDED.{name}" for name in names if name not in _STEP_RUN_KEY),
    )


def _assignments(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{execution_field(name).column} = %s" for name in changes)


def _table(model: type[models.Model]) -> str:
    return f'"{model._meta.db_table}"'


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_JSON = json.JSONEncoder(default=_plain)
