"""A lock taken and given back, with nobody else about."""

from __future__ import annotations

from collections.abc import Callable

import redis
import redis_lock

from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import interleaved, pinned, us
from reactor_coord.coordination import Taken, locks
from reactor_coord.coordination.types import Requester

KEY = "bench:lock"
FLOOR = "two EVALSHA"
OURS = "this package: fenced, fair, renewable, counted"
REDIS_PY = "redis-py Lock"


def measure(stage: Stage) -> Row:
    """Beside redis-py's `Lock`, python-redis-lock and two scripts that do nothing."""
    with pinned(stage.valkey.pid) as conditions:
        client = redis.Redis.from_url(stage.valkey.url)
        ours = _Ours()
        seconds = interleaved(
            {
                FLOOR: two_scripts(client),
                OURS: ours,
                REDIS_PY: _redis_py(client),
                "python-redis-lock": _python_redis_lock(client),
            },
            repetitions=stage.either(25, 5),
            calls=stage.either(200, 50),
        )
        locks().connection.close()
    check(ours.fences == sorted(set(ours.fences)), "the fences of successive holds did not rise")
    figures = tuple(Figure(name, us(each), each / seconds[FLOOR], name == OURS) for name, each in seconds.items())
    return Row(
        name="lock",
        title="a lock taken and given back, nobody else",
        conditions=conditions,
        figures=(*figures, Figure("this package beside redis-py Lock", f"{seconds[OURS] / seconds[REDIS_PY]:.2f}")),
        floor=FLOOR,
        checked="every take was had, every release was of a hold that stood, and fences rose",
        aim="faster than redis-py's Lock",
        is_met=seconds[OURS] < seconds[REDIS_PY],
    )


class _Ours:
    """One take and give; keeps the fences to look at afterwards."""

    def __init__(self) -> None:
        self._locks = locks()
        self._who = Requester(owner="bench", claim="bench")
        self.fences: list[int] = []

    def __call__(self) -> None:
        taken = self._locks.take([KEY], self._who, ttl=60)
        if not isinstance(taken, Taken):
            check(False, f"the lock was refused: {taken}")
            return
        self.fences.append(taken.keys[0].fence)
        self._locks.give(taken)


def two_scripts(client: redis.Redis) -> Callable[[], None]:
    """The floor: what redis-py needs to send two scripts that do nothing."""
    sha = str(client.script_load("return 1"))

    def act() -> None:
        client.evalsha(sha, 1, KEY, "a")
        client.evalsha(sha, 1, KEY, "a")

    return act


def _redis_py(client: redis.Redis) -> Callable[[], None]:
    lock = client.lock("bench:redis-py", timeout=60)

    def act() -> None:
        check(lock.acquire(), "redis-py did not get its lock")
        lock.release()

    return act


def _python_redis_lock(client: redis.Redis) -> Callable[[], None]:
    def act() -> None:
        lock = redis_lock.Lock(client, "bench", expire=60)
        check(lock.acquire(), "python-redis-lock did not get its lock")
        lock.release()

    return act
