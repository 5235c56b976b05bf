"""Values survive every path with their types, or are refused in words (B161, B162, B164)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils.translation import gettext_lazy

from reactor_coord import Input, Reactor, Retry, Step, compose, step, testing
from reactor_coord.errors import ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import failure, row
from tests.live.models import Posting
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: Decimal


VALUES = {
    "uuid": uuid.UUID(int=7),
    "naive": dt.datetime(2026, 1, 2, 3, 4, 5, 678),  # noqa: DTZ001
    "aware": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "offset": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    "fold": dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "date": dt.date(2026, 2, 28),
    "time": dt.time(23, 59, 59, 999999),
    "timedelta": dt.timedelta(days=-1, microseconds=3),
    "decimal": Decimal("1.10"),
    "bytes": b"\x00\xff",
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "tuple": (1, (2, "x")),
    "enum": Colour.RED,
    "int enum": Level.HIGH,
    "dataclass": Point(1, Decimal("2.50")),
    "large": 2**60 + 1,
    "negative": -(2**70),
    "infinity": math.inf,
    "float": 0.1 + 0.2,
    "bool": True,
    "none": None,
    "text": '\u00e9\U0001f600 \\ "',
    "nested": {"a": [(1, {2: Decimal("3")})], "b": {"c": {4, 5}}},
    "int keys": {1: "one", (2, 3): "pair"},
    "looks like a tag": {"$rc": "decimal", "v": "1"},
}

SEEN: list[Any] = []


class Passes(Step):
    """Takes it, sees it, returns it; sees it again in its undo."""

    value = Input(Any, default=None)
    retry = Retry(max_attempts=2, base_delay=0.01, backoff="fixed")

    def run(self) -> Any:
        SEEN.append(self.value)
        if self.context.attempt == 1:
            raise ConnectionError("once")
        return self.value

    def undo(self, result: Any) -> None:
        SEEN.extend([self.value, result])


class Child(Named):
    value = Input(Any, default=None)
    inner = step(Passes)
    returns = inner


class Passing(Named):
    value = Input(Any, default=None)
    first = step(Passes)
    second = compose(Child, value=first)

    @step(value=second, nested=first.map(lambda value: [value]))
    def third(value: Any, nested: Any) -> Any:
        SEEN.extend([value, *nested])
        return value

    returns = third
    last = step(Work, after=third)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_b161_b162_the_same_type_and_value_on_every_path(name: str, mode: str, reactor_dispatches: Any) -> None:
    value = VALUES[name]
    SEEN.clear()
    for fail_at, count in (("", 6), ("last", 10)):
        started: Any = getattr(Passing, mode)(value=value, fail_at=fail_at)
        testing.drain(timeout=5)
        found = row(started)
        assert found.status == ("failed" if fail_at else "completed"), found.failure
        assert len(SEEN) == count
        for seen in SEEN:
            assert type(seen) is type(value)
            assert seen == value
            assert repr(seen) == repr(value)
        if not fail_at:
            outcome = started if mode == "run" else started.wait(1)
            assert type(outcome.value) is type(value)
            assert outcome.value == value
        SEEN.clear()


def test_b161_nan_and_lazy_text() -> None:
    outcome = Passing.run(value=math.nan)
    assert outcome.succeeded
    assert math.isnan(outcome.value)
    lazy = Passing.run(value=gettext_lazy("Yes"))
    assert lazy.succeeded
    assert lazy.value == "Yes"
    assert type(lazy.value) is str


class _Unknown:
    pass


REFUSED = {
    "object": _Unknown(),
    "lambda": lambda: None,
    "generator": (number for number in range(3)),
    "file": open(__file__, encoding="utf-8"),  # noqa: SIM115 - it is to be refused, not read
    "nested": {"deep": [1, {"er": _Unknown()}]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_b164_an_input_that_cannot_be_stored_is_refused_at_the_start(name: str, reactor_dispatches: Any) -> None:
    for start in (Passing.run, Passing.enqueue):
        with pytest.raises(ReactorCoordError, match="value"):
            start(value=REFUSED[name])
    assert Execution.objects.count() == 0
    assert reactor_dispatches.ids == []


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_b164_a_result_that_cannot_be_stored_fails_its_step(
    name: str, mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Returns(Work):
        def run(self) -> Any:
            return REFUSED[name]

    class Returning(Named):
        a = step(Work)
        odd = step(Returns, after=a)

    started: Any = getattr(Returning, mode)()
    testing.drain()
    found = row(started)
    assert found.status == "failed"
    assert found.failure is not None
    assert (found.failure["step"], found.failure["error_type"]) == ("odd", "CodecError")
    assert recorder.sequence() == ["run a", "comp odd", "undo a"]


def test_b164_a_model_instance_is_passed_by_reference() -> None:
    posting = Posting.objects.create(account="k", amount=3, execution="")
    SEEN.clear()
    outcome = Passing.run(value=posting)
    assert outcome.succeeded, outcome.failure
    assert outcome.value == posting
    assert all(seen.amount == 3 for seen in SEEN)


def test_b164_a_queryset_is_refused_in_words() -> None:
    with pytest.raises(ReactorCoordError, match="value"):
        Passing.run(value=Posting.objects.all())


def test_b164_a_transform_whose_value_cannot_be_stored_still_runs(recorder: Recorder) -> None:
    """Arguments need not be storable, only inputs and results."""

    class Mapped(Named):
        a = step(Work)

        @step(thing=a.map(lambda _: _Unknown()))
        def b(thing: Any) -> str:
            return type(thing).__name__

        @b.undo
        def _(result: str, thing: Any) -> None:
            undone.append(type(thing).__name__)

        z = step(Work, after=b)

    undone: list[str] = []
    outcome = Mapped.run(fail_at="z")
    assert failure(outcome).step == "z"
    assert outcome.results["b"] == "_Unknown"
    assert undone == ["_Unknown"]


def test_a_reactors_value_that_cannot_be_stored_fails_and_rolls_back(recorder: Recorder) -> None:
    class Valued(Named):
        a = step(Work)
        returns = a.map(lambda _: _Unknown())

    outcome = Valued.run()
    assert failure(outcome).error_type == "CodecError"
    assert recorder.sequence() == ["run a", "undo a"]


def test_a_redacted_input_shows_nowhere(recorder: Recorder) -> None:
    class Secret(Reactor):
        token = Input(str, redact=True)

        @step(token=token)
        def use(token: str) -> None:
            raise ValueError(f"the gateway refused {token}")

    outcome = Secret.run(token="tok_verysecret")
    assert failure(outcome).error_type == "ValueError"
    assert "tok_verysecret" not in failure(outcome).message
    assert "tok_verysecret" not in str(failure(outcome).arguments)
    from reactor_coord.models import StepRun, TraceEvent

    assert "tok_verysecret" not in str(list(TraceEvent.objects.values_list("data", flat=True)))
    assert "tok_verysecret" not in str(list(StepRun.objects.values_list("error", flat=True)))
