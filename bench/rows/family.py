"""All five primitives around one place, taken and given back, with nobody in the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import redis

from bench.result import Figure, Row, check
from bench.rows.lock import two_scripts
from bench.stage import Stage
from bench.timing import interleaved, pinned, us
from reactor_coord import Input, Step, with_lock, with_ordered_lock, with_period, with_rate_limit, with_semaphore
from reactor_coord.coordination import Requester, locks
from reactor_coord.runtime import gates

FLOOR = "two EVALSHA"
OURS = "this package, all five at one place"
APART = "this package, each at a place of its own"
LOCK = "this package, the lock alone"
MANY = 1_000_000
TAKEN = 3
"""Of the five, what is held: the turn, the lock and the slot, and beside them the mark to come."""


@with_ordered_lock("bench:line")
@with_period("bench:period:{number}", every="day")
@with_rate_limit("bench:rate", limit=MANY, period="day")
@with_lock("bench:lock", ttl=60)
@with_semaphore("bench:semaphore", limit=5, ttl=60)
class Everything(Step):
    """One body a number: the period's key is the number's, so that none is skipped."""

    number = Input(int)


def measure(stage: Stage) -> Row:
    """What one round trip for all of them saves, beside as many as there are primitives."""
    declared = Everything.coordination
    with pinned(stage.valkey.pid) as conditions:
        client = redis.Redis.from_url(stage.valkey.url)
        seconds = interleaved(
            {
                FLOOR: two_scripts(client),
                OURS: _Around(declared),
                APART: _apart({name: _Around({name: declaration}) for name, declaration in declared.items()}),
                LOCK: _Around({"lock": declared["lock"]}),
            },
            repetitions=stage.either(25, 5),
            calls=stage.either(200, 50),
        )
        locks().connection.close()
    ours = (OURS, APART, LOCK)
    return Row(
        name="family",
        title="all five primitives taken and given back, nobody else",
        conditions=conditions,
        figures=tuple(Figure(name, us(each), each / seconds[FLOOR], name in ours) for name, each in seconds.items()),
        floor=FLOOR,
        checked="every take was had whole, and every hold given back",
    )


class _Around:
    """What a step does around its body."""

    _numbers = itertools.count()

    def __init__(self, declarations: Mapping[str, Any]) -> None:
        self._declarations = declarations

    def __call__(self) -> None:
        place = gates.Place(
            requester=Requester(owner="bench", claim="bench", execution="bench"),
            reactor="Bench",
            step="everything",
            arguments={"number": next(self._numbers)},
            redacted=frozenset(),
            declarations=self._declarations,
            emit=_ignore,
            parks=False,
        )
        holds = gates.acquire(place)
        had = sum(hold.is_told for hold in holds)
        wanted = TAKEN if len(self._declarations) > 1 else had
        check(had == wanted, f"{had} of {wanted} were had")
        gates.release(holds, gates.Ending.SUCCEEDED)
        check(not holds, f"{len(holds)} were not given back")


def _apart(each: Mapping[str, _Around]) -> Callable[[], None]:
    def act() -> None:
        for around in each.values():
            around()

    return act


def _ignore(*_: Any, **__: Any) -> None:
    pass
