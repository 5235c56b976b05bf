"""Ten durable steps in the calling process, beside ten bare commits of a row of the same kind."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable

import psycopg
from django.db import connections

from bench import routing
from bench.reactors import Ten
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import interleaved, ms, pinned
from reactor_coord.models import StepRun

STEPS = 10
AIM = 2.5
WARM_UP = 5
COMMITS = "ten INSERT and COMMIT"
OURS = "this package, ten steps"
UNPREPARED = "this package, as behind a pooler"
TABLE = "CREATE TABLE bench_floor (id {serial} PRIMARY KEY, execution {uuid}, step {text}, result {json}, at {time})"


def measure_postgresql(stage: Stage) -> Row:
    """With fsync on, through psycopg."""
    with pinned(stage.postgres.pid) as conditions, psycopg.connect(stage.postgres.url) as bare:
        connections.close_all()
        bare.execute(TABLE.format(serial="bigserial", uuid="uuid", text="text", json="jsonb", time="timestamptz"))
        bare.commit()
        with psycopg.connect(stage.postgres.url, autocommit=True) as auto:
            insert = "INSERT INTO bench_floor (execution, step, result, at) VALUES (%s, %s, %s, now())"

            def commit() -> None:
                bare.execute(insert, (uuid.uuid4(), "one", "1"))
                bare.commit()

            floors = {
                COMMITS: _ten(commit),
                "ten INSERT in autocommit": _ten(lambda: auto.execute(insert, (uuid.uuid4(), "one", "1"))),
            }
            row = _row(
                stage, "steps-postgresql", ("default", "unprepared"), floors, f"{conditions}; PostgreSQL with fsync"
            )
        connections.close_all()
    return row


def measure_sqlite(stage: Stage) -> Row:
    """In WAL mode with `synchronous=FULL`, which waits for the disk at every commit, as PostgreSQL does."""
    path = str(connections["sqlite"].settings_dict["NAME"])
    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("PRAGMA synchronous=FULL")
    bare.execute(TABLE.format(serial="integer", uuid="text", text="text", json="text", time="text"))
    insert = "INSERT INTO bench_floor (execution, step, result, at) VALUES (?, ?, ?, datetime())"

    def commit() -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute(insert, (str(uuid.uuid4()), "one", "1"))
        bare.execute("COMMIT")

    with pinned() as _:
        row = _row(
            stage, "steps-sqlite", ("sqlite",), {COMMITS: _ten(commit)}, "one core; SQLite, WAL, synchronous=FULL"
        )
    bare.close()
    return row


def _row(
    stage: Stage, name: str, aliases: tuple[str, ...], floors: dict[str, Callable[[], None]], conditions: str
) -> Row:
    repetitions, calls = stage.either(25, 5), stage.either(10, 4)
    ours = {OURS: _ours(aliases[0])} | ({UNPREPARED: _ours(aliases[1])} if aliases[1:] else {})
    before = _done(aliases[0])
    seconds = interleaved({**floors, **ours}, repetitions=repetitions, calls=calls, warm_up=WARM_UP)
    done = _done(aliases[0]) - before
    expected = len(ours) * STEPS * (repetitions * calls + WARM_UP)
    check(done == expected, f"{done} step runs are in the database, not {expected}")
    has_aim = aliases[0] == "default"
    return Row(
        name=name,
        title="ten durable steps in process, each with its trace, under a lease",
        conditions=conditions,
        figures=tuple(Figure(each, ms(took), took / seconds[COMMITS], each in ours) for each, took in seconds.items()),
        floor=COMMITS,
        checked=f"all {expected:,} step runs are in the database as succeeded, and every value was right",
        aim=f"within {AIM} times the commits" if has_aim else "",
        is_met=seconds[OURS] <= AIM * seconds[COMMITS] if has_aim else None,
    )


def _ours(alias: str) -> Callable[[], None]:
    def act() -> None:
        with routing.use(alias):
            outcome = Ten.run(start=5)
        check(
            outcome.succeeded and outcome.value == 5 + STEPS, f"ten steps came to {outcome.value!r}: {outcome.failure}"
        )

    return act


def _done(alias: str) -> int:
    return StepRun.objects.using(alias).filter(status="succeeded").count()


def _ten(commit: Callable[[], object]) -> Callable[[], None]:
    def act() -> None:
        for _ in range(STEPS):
            commit()

    return act
