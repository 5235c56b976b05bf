"""Which arguments make the same key, before and after a row has carried them; and what a fence is for."""

from __future__ import annotations

import itertools
import json
import os
import signal
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from reactor_coord import (
    Input,
    Step,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import ordered_lines
from reactor_coord.declare.keys import Key
from reactor_coord.errors import CoordinationKeyError, RateLimitExceeded
from reactor_coord.storage import codec
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import eventually, failure, forked, runs
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

UUID_TEXT = "6f1c2b1e-0b7a-4c1d-9d0e-000000000001"
EQUAL: list[list[Any]] = [
    [1, "1", Decimal("1")],
    [1.0, "1.0", Decimal("1.0")],
    [True, "True"],
    [UUID(UUID_TEXT), UUID_TEXT],
    ["caf\u00e9", "cafe\u0301"],  # the same letters, composed and not
    ["a "],
    [" a"],
    ["a"],
    ["A"],
    ["0"],
    ["-0"],
    [UUID_TEXT.upper()],
]
"""Values of one row make one key, those of two rows two: a value counts as its text, in the composed form of Unicode."""


def key_of(value: Any) -> str:
    return Key("k:{value}", frozenset({"value"})).compute({"value": value}, frozenset())


def carried(value: Any) -> Any:
    """The value as a row gives it back."""
    return codec.decode(json.loads(json.dumps(codec.encode({"value": value}))))["value"]


def test_b157_the_table_of_equal_keys_holds_before_and_after_the_round_trip() -> None:
    for row in EQUAL:
        assert len({key_of(value) for value in row} | {key_of(carried(value)) for value in row}) == 1, row
    for one, other in itertools.combinations(EQUAL, 2):
        assert key_of(one[0]) != key_of(other[0]), (one, other)


@pytest.mark.parametrize("value", [None, "", {"a": 1}, {1, 2}, object()])
def test_b157_what_has_no_text_of_its_own_makes_no_key(value: Any) -> None:
    with pytest.raises(CoordinationKeyError):
        key_of(value)


def test_b157_the_order_of_arguments_and_a_default_given_by_hand_change_nothing() -> None:
    key = Key("{b}:{a}", frozenset({"a", "b"}))
    assert key.compute({"a": 1, "b": 2}, frozenset()) == key.compute({"b": 2, "a": 1}, frozenset()) == "2:1"


FIVE = {
    "lock": partial(with_lock, ttl=5),
    "semaphore": partial(with_semaphore, limit=1, ttl=5),
    "ordered_lock": partial(with_ordered_lock),
    "rate_limit": partial(with_rate_limit, limit=1, period=315_360_000),
    "period": partial(with_period, every=315_360_000),
}


@pytest.mark.parametrize("primitive", FIVE)
@pytest.mark.parametrize(
    ("template", "one", "other"),
    [
        ("{tenant}:{item}", ("a:b", "c"), ("a", "b:c")),
        ("{tenant}-{item}", ("1-2", "3"), ("1", "2-3")),
        ("{tenant}{item}", ("1", "23"), ("12", "3")),
        ("{tenant}%{item}", ("x", "25y%z"), ("x%y", "25z")),
    ],
)
def test_u54_and_b160_two_values_cannot_be_cut_another_way_at_any_primitive(
    primitive: str, template: str, one: tuple[str, str], other: tuple[str, str], recorder: Recorder
) -> None:
    """Held by one, the key of the other is free; marked or used up for one, it is not for the other."""
    reactor = _pair(FIVE[primitive](template))
    with testing.hold(key_of_pair(template, one)):
        first, second = (reactor.run(tenant=tenant, item=item) for tenant, item in (other, (other[1], other[0])))
    third = reactor.run(tenant=one[0], item=one[1])
    for outcome in (first, second, third):
        assert outcome.succeeded, outcome.failure
        assert [run.reason for run in runs(outcome).values()] == [""]
    assert recorder.count("run only") == 3


def key_of_pair(template: str, pair: tuple[str, str]) -> str:
    names = frozenset({"tenant", "item"})
    return Key(template, names).compute(dict(zip(("tenant", "item"), pair, strict=True)))


def _pair(decorator: Any) -> type[Named]:
    @decorator
    class Paired(Work):
        tenant = Input(str)
        item = Input(str)

    class Pairing(Named):
        tenant = Input(str)
        item = Input(str)
        only = step(Paired)

    return Pairing


def test_a_named_limit_and_its_key_cannot_be_cut_another_way(settings: Any, recorder: Recorder) -> None:
    once = {"day": 1}
    settings.REACTOR_COORD = {**settings.REACTOR_COORD, "RATE_LIMITS": {"a:b": once, "a": once, "plain": once}}

    def start(limit: str, key: str) -> None:
        @with_rate_limit(key, name=limit)
        class Limited(Step):
            def run(self) -> None: ...

        Limited.call()

    start("a:b", "c")
    start("a", "b:c")
    start("plain", "c")
    with pytest.raises(RateLimitExceeded):
        start("plain", "c")


# ---- what a fence is for

STATE = """
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1
"""


@with_lock("state", ttl=0.6, wait=5)
class Writing(Step):
    """Stands still between its work and its writing, if it is told to."""

    name = Input(str)
    stops = Input(bool, default=False)

    def run(self) -> int:
        current = recorders.current()
        with current.recording("body", name=self.name):
            if self.stops:
                os.kill(os.getpid(), signal.SIGSTOP)
        client = recorders.client(current.url)
        return int(client.eval(STATE, 1, f"{current.key}:state", self.context.fence("state"), self.name))


class Written(Named):
    stops = Input(bool, default=False)
    write = step(Writing)
    returns = write


def test_b184_a_holder_that_stood_still_cannot_overwrite_what_came_after_it(recorder: Recorder) -> None:
    def stale() -> None:
        outcome = Written.run(name="stale", stops=True)
        assert failure(outcome).error_type == "LockLost"

    with forked(stale) as pid:
        recorder.wait_for("body")
        contender = Written.run(name="contender")
        assert contender.value == 1
        os.kill(pid, signal.SIGCONT)
        status = eventually(lambda: os.waitpid(pid, os.WNOHANG) if _is_child(pid) else (pid, 0))
        assert os.waitstatus_to_exitcode(status[1]) == 0
    client = recorders.client(recorder.url)
    assert client.hget(f"{recorder.key}:state", "by") in {b"contender", "contender"}


def _is_child(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_key_that_cannot_be_had_is_told_in_its_turn_and_what_was_taken_before_it_is_given_back(
    recorder: Recorder,
) -> None:
    @with_ordered_lock("{key}:line")
    @with_lock("{key}")
    @with_semaphore("{nothing}", limit=1)
    class Odd(Work):
        key = Input(str)
        nothing = Input(str, default="")

    class OneOdd(Named):
        key = Input(str)
        odd = step(Odd)

    error = failure(OneOdd.run(key="k"))
    assert error.error_type == "CoordinationKeyError"
    assert "'nothing' is empty" in error.message
    assert isinstance(error.error, CoordinationKeyError) and error.error.details["primitive"] == "semaphore"
    testing.assert_free("k")
    assert ordered_lines().view("k:line").is_drained
    assert recorder.count("run odd") == 0


def test_a_key_is_computed_once_for_all_phases(recorder: Recorder) -> None:
    """Look and charge mean the same limit, whatever the author's function does."""
    numbers = itertools.count()

    @with_lock(lambda arguments: f"lock {next(numbers)}")
    @with_rate_limit(lambda arguments: f"limit {next(numbers)}", limit=1, period=3600)
    class Counting(Work):
        pass

    class CountsKeys(Named):
        counting = step(Counting)

    assert CountsKeys.run().succeeded
    assert next(numbers) == 2
