"""`Step` classes: built only through the right doors, and checked when they are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reactor_coord import DefinitionError, Failure, Halt, Input, NotRunnable, Retry, Skipped, Step, Success, with_lock
from reactor_coord.declare import entrance as port
from reactor_coord.results import Decided


class Charge(Step):
    """All hooks there are."""

    account = Input(int)
    retry = Retry(2)

    def run(self) -> int:
        return self.account

    def guard(self) -> None: ...

    def where(self) -> bool:
        return bool(self.account)

    def compensate(self, error: Any) -> None: ...

    def undo(self, result: Any) -> None: ...


class Plain(Step):
    """None of them."""

    def run(self) -> None: ...


HOOKS = ("guard", "where", "compensate", "undo")


def test_what_the_author_wrote_is_told() -> None:
    assert all(getattr(Charge, f"has_{hook}") for hook in HOOKS)
    assert not any(getattr(Plain, f"has_{hook}") for hook in HOOKS)
    child = type("Child", (Charge,), {})
    assert all(getattr(child, f"has_{hook}") for hook in HOOKS)
    assert not Step.has_run
    assert Plain.has_run


def test_by_hand_it_is_refused_with_the_ways_that_work() -> None:
    with pytest.raises(DefinitionError) as caught:
        Charge(account=1)
    for way in ("Charge.call(", "step(Charge", "testing.bare(Charge"):
        assert way in str(caught.value)


def test_bind_builds_one_unprotected() -> None:
    context = object()
    bound = Charge.bind({"account": 5, "extra": 1}, context)
    assert bound.run() == 5
    assert bound.context is context
    assert bound.arguments == {"account": 5, "extra": 1}
    assert not hasattr(bound, "extra")
    assert repr(bound) == "<Charge>"


@pytest.mark.parametrize(
    ("verdict", "result"),
    [
        (lambda step: step.fail("no"), Failure("no")),
        (lambda step: step.fail("no", retryable=False), Failure("no", retryable=False)),
        (lambda step: step.skip(reason="why"), Skipped(reason="why")),
        (lambda step: step.skip(3), Skipped(3)),
        (lambda step: step.halt(1, "enough"), Halt(1, "enough")),
        (lambda step: step.succeed({"a": 1}), Success({"a": 1})),
    ],
)
def test_verdicts_end_a_body_from_any_depth(verdict: Any, result: Any) -> None:
    with pytest.raises(Decided) as caught:
        verdict(Plain.bind({}, None))
    assert caught.value.result == result


def coroutine() -> Any:
    async def run(self: Any) -> None: ...

    return run


def generator() -> Any:
    def run(self: Any) -> Iterator[int]:
        yield 1

    return run


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"retry": 3}, "Bad.retry = 3: must be a Retry"),
        ({"atomic": "yes"}, "Bad.atomic = 'yes'"),
        ({"run": coroutine()}, "Bad.run is async"),
        ({"run": generator()}, "Bad.run has a yield"),
        ({"run": lambda self, amount: None}, r"Bad.run\(self, amount\): it is called as \(self\)"),
        ({"undo": lambda self: None}, r"Bad.undo\(self\): it is called as \(self, result\)"),
        ({"compensate": lambda self: None}, r"called as \(self, error\)"),
        ({"guard": lambda self, x: None}, r"Bad.guard"),
        ({"__init__": lambda self: None}, "defines __init__"),
    ],
)
def test_a_body_that_could_not_be_called_is_refused_at_import(body: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        type("Bad", (Step,), {"run": lambda self: None, **body})


def test_a_hook_may_have_optional_parameters_of_its_own() -> None:
    good: type[Step] = type("Good", (Step,), {"undo": lambda self, result, again=False: None})
    assert good.has_undo


class FakeEntrance:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def asked(*args: Any) -> str:
            self.asked.append((name, *args))
            return name

        return asked


@pytest.fixture
def entrance(monkeypatch: pytest.MonkeyPatch) -> FakeEntrance:
    fake = FakeEntrance()
    monkeypatch.setattr(port, "_bound", [fake])
    return fake


def test_call_goes_through_the_entrance(entrance: FakeEntrance) -> None:
    context: Any = object()
    assert Charge.call(account=1) == "call_step"
    Charge.call(context=context, account=2)
    assert entrance.asked == [
        ("call_step", Charge, {"account": 1}, None),
        ("call_step", Charge, {"account": 2}, context),
    ]


def test_without_a_runtime_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "_bound", [])
    with pytest.raises(NotRunnable, match="INSTALLED_APPS"):
        Charge.call(account=1)


def test_a_coordination_above_a_method_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"with_lock was put on Wrong\.run.*above the class Wrong"):

        class Wrong(Step):
            @with_lock("a")
            def run(self) -> None: ...
