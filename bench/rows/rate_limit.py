"""A start charged against a limit that has room, beside the `limits` library."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable

import redis

from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import interleaved, pinned, us
from reactor_coord.coordination import locks
from reactor_coord.coordination.process import rate_limits
from reactor_coord.coordination.rate_limit import Window

FLOOR = "one EVALSHA"
MANY = 1_000_000
FIXED, SLIDING = "this package, fixed window", "this package, sliding window"
STEP = "this package, look and charge (a step)"


def measure(stage: Stage) -> Row:
    """Each counts a start; ours also keeps the token, so that a start counts once, and the plan for who is refused."""
    with pinned(stage.valkey.pid) as conditions:
        client = redis.Redis.from_url(stage.valkey.url)
        sha = str(client.script_load("return 1"))
        fixed, sliding = _Ours("fixed_window"), _Ours("sliding_window")
        contenders: dict[str, Callable[[], object]] = {
            FLOOR: lambda: client.evalsha(sha, 1, "bench:floor", "a"),
            FIXED: fixed,
            SLIDING: sliding,
            STEP: fixed.look_and_charge,
            **_limits(stage.valkey.url),
        }
        seconds = interleaved(contenders, repetitions=stage.either(25, 5), calls=stage.either(200, 50))
        locks().connection.close()
    counted = fixed.counted()
    check(counted == fixed.calls, f"{fixed.calls} starts were charged, the window counts {counted}")
    ours = (FIXED, SLIDING, STEP)
    return Row(
        name="rate-limit",
        title="a start charged against a limit with room",
        conditions=conditions,
        figures=tuple(Figure(name, us(each), each / seconds[FLOOR], name in ours) for name, each in seconds.items()),
        floor=FLOOR,
        checked=f"all passed, and the window counts the {fixed.calls:,} starts that were charged",
        notes=() if _has_limits() else ("the limits library is not installed: no peer beside it",),
    )


class _Ours:
    def __init__(self, algorithm: str) -> None:
        self._limits = rate_limits()
        self._windows = (Window(MANY, 86400.0),)
        self._algorithm = algorithm
        self._key = f"bench:{algorithm}"
        self._tokens = itertools.count()
        self.calls = 0

    def __call__(self) -> None:
        token = f"t{next(self._tokens)}"
        refused = self._limits.charge(self._key, "bench", token, self._windows, self._algorithm, plans=True)
        check(refused is None, "a start was refused though there is room")
        self.calls += 1

    def look_and_charge(self) -> None:
        """What a step does: it looks before it takes its lock, and charges at the last moment."""
        refused = self._limits.look(self._key, "bench", self._windows, self._algorithm, plans=True)
        check(refused is None, "a look was refused though there is room")
        self()

    def counted(self) -> int:
        """What the window says."""
        return sum(count for _, count in self._limits.view(self._key).windows)


def _has_limits() -> bool:
    return importlib.util.find_spec("limits") is not None


def _limits(url: str) -> dict[str, Callable[[], object]]:
    if not _has_limits():
        return {}
    from limits import RateLimitItemPerDay
    from limits.storage import storage_from_string
    from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

    storage, item = storage_from_string(url), RateLimitItemPerDay(MANY)
    fixed, moving = FixedWindowRateLimiter(storage), MovingWindowRateLimiter(storage)
    return {
        "limits, fixed window": lambda: check(fixed.hit(item, "fixed"), "limits refused"),
        "limits, moving window": lambda: check(moving.hit(item, "moving"), "limits refused"),
    }
