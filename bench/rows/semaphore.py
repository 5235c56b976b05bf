"""A semaphore's slot taken and given back, with room for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from bench.result import Figure, Row, check
from bench.rows.lock import two_scripts
from bench.stage import Stage
from bench.timing import interleaved, pinned, us
from reactor_coord.coordination import Taken, locks, process
from reactor_coord.coordination.types import Requester

FLOOR = "two EVALSHA"
OURS = "this package, semaphore"
KEY = "bench:semaphore"
LIMIT = 5


def measure(stage: Stage) -> Row:
    """Beside our lock and two scripts that do nothing: what slots cost more than one holder."""
    with pinned(stage.valkey.pid) as conditions:
        client = redis.Redis.from_url(stage.valkey.url)
        seconds = interleaved(
            {FLOOR: two_scripts(client), OURS: _semaphore(), "this package, lock": _lock()},
            repetitions=stage.either(25, 5),
            calls=stage.either(200, 50),
        )
        locks().connection.close()
    return Row(
        name="semaphore",
        title=f"one of {LIMIT} slots taken and given back, nobody else",
        conditions=conditions,
        figures=tuple(Figure(name, us(each), each / seconds[FLOOR], name == OURS) for name, each in seconds.items()),
        floor=FLOOR,
        checked="every take was had",
    )


def _semaphore() -> Callable[[], None]:
    semaphores: Any = process.semaphores()
    who = Requester(owner="bench", claim="bench")

    def act() -> None:
        taken = semaphores.take(KEY, who, limit=LIMIT, ttl=60)
        check(isinstance(taken, Taken), f"the semaphore was refused: {taken}")
        semaphores.give(taken)

    return act


def _lock() -> Callable[[], None]:
    who = Requester(owner="bench", claim="bench")

    def act() -> None:
        taken = locks().take([KEY], who, ttl=60)
        if not isinstance(taken, Taken):
            check(False, f"the lock was refused: {taken}")
            return
        locks().give(taken)

    return act
