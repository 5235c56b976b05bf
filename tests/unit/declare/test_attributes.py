"""A class attribute that nothing reads, and that its author surely meant, is refused with what to write instead."""

from __future__ import annotations

import enum
from functools import cached_property, partialmethod
from typing import Any, ClassVar

import pytest
from pydantic import Field

from reactor_coord import (
    DefinitionError,
    Input,
    Reactor,
    Retry,
    Step,
    element,
    map_each,
    step,
    with_lock,
    with_semaphore,
)
from reactor_coord.declare.suggest import near_miss


class Charge(Step):
    """One input."""

    amount = Input(int, default=1)

    def run(self) -> None: ...


def on_step(*bases: type[Any], **body: Any) -> type[Step]:
    return type("Bad", (*bases, Step), {"run": lambda self: None, **body})


def on_reactor(*bases: type[Any], **body: Any) -> type[Reactor]:
    return type("Bad", (*bases, Reactor), {"charge": step(Charge), **body})


EITHER: list[tuple[str, Any, str]] = [
    # reserved
    ("timeout", 3, r"Bad\.timeout = 3: It would be ignored\. The name is reserved .* Nothing here ends a body"),
    ("output", int, r"Bad\.output = int: It would be ignored\. The name is reserved"),
    ("schedule", "0 6 * * *", "reserved .* Celery beat"),
    ("failure_policy", "ask", "reserved .* rolled back"),
    ("renamed_from", "old", "renamed_from="),
    # of Celery's tasks
    ("retries", 2, r"Bad\.retries = 2: It would be ignored\. Retries are declared as retry = Retry\("),
    ("max_retries", 3, "Retries are declared as"),
    ("autoretry_for", (ValueError,), "Retries are declared as"),
    ("default_retry_delay", 3, "Retries are declared as"),
    ("time_limit", 30, "Nothing here ends a body"),
    ("rate_limit", "10/m", r"decorator above the class, as in @with_rate_limit\(\.\.\.\)"),
    ("acks_late", True, "always sent again"),
    # what is a decorator
    ("lock", "acct:{amount}", r"@with_lock\(\.\.\.\)"),
    ("coordination", [with_lock("a")], r"taken by (Step|Reactor) itself\. .*@with_lock\(\.\.\.\)"),
    # other frameworks' ways
    ("Meta", type("Meta", (), {"queue": "slow"}), r"Bad\.Meta = Meta: Nothing reads it: options are attributes"),
    ("limit", Field(gt=0), r"A Field of pydantic is no input: write Input\(type, \.\.\.\)"),
]


@pytest.mark.parametrize("make", [on_step, on_reactor])
@pytest.mark.parametrize(("name", "value", "words"), EITHER)
def test_u55_what_would_be_ignored_is_refused_on_both(make: Any, name: str, value: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make(**{name: value})


@pytest.mark.parametrize("make", [on_step, on_reactor])
def test_u55_in_a_mix_in_too(make: Any) -> None:
    class Slow:
        timeout = 300

    with pytest.raises(DefinitionError, match=r"Bad\.timeout = 300: It would be ignored"):
        make(Slow)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        # of the reactor
        ({"queue": "slow"}, r"Bad\.queue = 'slow': It would be ignored\. No step reads it: write it on the Reactor"),
        ({"returns": "charge"}, "No step reads it"),
        ({"on_crash": "resume"}, "No step reads it"),
        ({"background_after": "charge"}, "No step reads it"),
        ({"after": Charge}, r"said where the step is used: step\(Bad, after=\.\.\.\)"),
        ({"charge": step(Charge)}, "A step stands in the body of a Reactor"),
        # under another name
        ({"retry_slowly": Retry(3)}, "It would be ignored. Name it retry"),
        (
            {"exclusive": with_lock("a")},
            r"Bad\.exclusive = with_lock\(\.\.\.\): It would be ignored\. Write it as a decorator",
        ),
        # near misses
        ({"retyr": Retry(3)}, "Name it retry"),
        ({"retri": 3}, r"Bad\.retri = 3: It would be ignored\. Did you mean 'retry'\?"),
        ({"atomc": True}, "Did you mean 'atomic'"),
        ({"allow_in_atomc": True}, "Did you mean 'allow_in_atomic'"),
        ({"gaurd": lambda self: None}, r"Bad\.gaurd\(self\): Nothing calls it\. Did you mean 'guard'\?"),
        ({"compensat": lambda self, error: None}, r"Bad\.compensat\(self, error\): .* Did you mean 'compensate'"),
        ({"undoo": lambda self, result: None}, "Did you mean 'undo'"),
        ({"compensation": lambda self, error: None}, r"Nothing calls it\. When the step itself fails, compensate"),
        ({"on_failure": lambda self, *args: None}, "Nothing calls it. When the step itself fails"),
        ({"on_retry": lambda self, *args: None}, r"self\.context\.attempt"),
        # hooks that are no methods
        ({"undo": None}, r"Bad\.undo = None: It must be a method: def undo\(self, \.\.\.\)"),
        ({"where": False}, r"Bad\.where = False: It must be a method"),
        ({"run": staticmethod(lambda self: None)}, "It must be a method"),
        ({"guard": classmethod(lambda cls: None)}, "It must be a method"),
        ({"run": property(lambda self: None)}, "It must be a method"),
        # names of Step's own
        ({"context": {}}, "taken by Step itself. Choose another"),
        ({"arguments": property(lambda self: {})}, "taken by Step itself"),
        ({"has_undo": True}, "taken by Step itself"),
        ({"fail": "no"}, "taken by Step itself"),
        ({"call": lambda self: None}, "It is called on the class: write @classmethod above it to extend it."),
    ],
)
def test_u55_what_a_step_does_not_read_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        on_step(**body)


AMOUNT = Input(int)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        # of a step
        ({"retry": Retry(3)}, r"It would be ignored\. No reactor reads it: .* or as step\(\.\.\., retry=\.\.\.\)"),
        ({"atomic": True}, "No reactor reads it"),
        ({"guard": lambda self: None}, r"Bad\.guard\(self\): No reactor has a guard: write it on a Step class"),
        ({"undo": lambda self, result: None}, r"or as @<step>\.undo"),
        # of one run
        ({"tags": {"customer": 5}}, r"It belongs to one run: Bad\.options\(tags=\.\.\.\)"),
        ({"idempotency_key": "k"}, r"Bad\.options\(idempotency_key=\.\.\.\)"),
        # near misses
        ({"quue": "slow"}, "Did you mean 'queue'"),
        ({"on_crahs": "resume"}, "Did you mean 'on_crash'"),
        ({"retuns": "charge"}, "Did you mean 'returns'"),
        ({"background_affter": "charge"}, "Did you mean 'background_after'"),
        # methods
        (
            {"notify": lambda self, receipt: None},
            r"Bad\.notify\(self, receipt\): A Reactor is never instantiated.* Put @step above",
        ),
        ({"run": lambda self: None}, "taken by Reactor itself. .* the work of a reactor goes into its steps"),
        ({"options": {"queue": "x"}}, "taken by Reactor itself"),
        ({"definition": 3}, "taken by Reactor itself"),
    ],
)
def test_u55_what_a_reactor_does_not_read_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        on_reactor(**body)


def test_u55_a_reference_under_a_name_that_is_not_read_is_told_what_was_meant() -> None:
    with pytest.raises(DefinitionError, match=r"Wrong\.retuns = charge\['receipt'\]: .*Did you mean 'returns'"):

        class Wrong(Reactor):
            charge = step(Charge)
            retuns = charge["receipt"]

    with pytest.raises(DefinitionError, match=r"one step stands under two names.*Did you mean 'returns' by 'retuns'\?"):

        class Twice(Reactor):
            charge = step(Charge)
            retuns = charge


def test_u55_what_is_ones_own_stays_allowed() -> None:
    class Mixin:
        template = "mail.html"
        model: ClassVar[Any] = None

        def rollback(self) -> None: ...

    class Kind(enum.Enum):
        CARD = "card"

    class Own(Mixin, Step):
        """All that a class may have beside."""

        TIMEOUT = 3
        RETRIES: ClassVar[int] = 2
        SLOW = Retry(9)
        LOCK = with_lock("a")
        _timeout = 3
        _output = int
        retries = Input(int, default=2)  # an input is one, whatever its name
        timeout = Input(float, default=1.0)
        template = "letter.html"
        kind = Kind.CARD
        fields = ("a", "b")
        entry = 3
        compensated = False
        Result = dict
        limit: int = 5
        gateway: Any
        retry = SLOW

        class Problem(Exception):
            """A nested class."""

        @property
        def output(self) -> int:
            return 1

        @cached_property
        def schedule(self) -> int:
            return 1

        @classmethod
        def lock(cls) -> None: ...

        @staticmethod
        def guards() -> None: ...

        half = partialmethod(lambda self, one: one, 1)

        def semaphore(self) -> None: ...

        def fail(self, error: Any, retryable: bool = True) -> Any:
            return super().fail(error, retryable)

        @classmethod
        def call(cls, /, context: Any = None, **inputs: Any) -> Any:
            return super().call(context=context, **inputs)

        def run(self) -> None: ...

    def half(amount: int) -> int:
        return amount // 2

    class Flow(Reactor):
        """The same of a reactor."""

        SLOW = Retry(9)
        quick = Retry(2)  # a value on its way into a step
        _private = 3
        amount = Input(int)
        deadline = Input(str, default="")
        limit = 5
        receipt = amount.map(str)
        doubled = amount.map(lambda amount: amount * 2)

        class Part(Step):
            def run(self) -> None: ...

        def cents(amount: int) -> int:  # type: ignore[misc]
            return amount * 100

        def is_big(amount: int) -> bool:  # type: ignore[misc]
            return amount > 5

        def label(value: Any) -> str:
            return str(value)

        @staticmethod
        def notify(amount: int) -> None: ...

        @classmethod
        def of(cls, amount: int) -> None: ...

        @classmethod
        def run(cls, /, **inputs: Any) -> Any:
            return super().run(**inputs)

        charge = step(Charge, amount=amount.map(cents), retry=quick, where=is_big)
        part = step(Part)
        output = step(Charge)
        each = map_each(Charge, over=amount.map(lambda amount: [amount]), amount=element().map(half), collect=len)

    assert Own.retry == Retry(9)
    assert list(Flow.definition.steps) == ["charge", "part", "output", "each"]


def test_a_function_above_which_a_step_was_forgotten_is_told_so() -> None:
    with pytest.raises(
        DefinitionError, match=r"Forgot\.notify\(charge, amount\): .*Put @step above it, or @staticmethod"
    ):

        class Forgot(Reactor):
            amount = Input(int)
            charge = step(Charge)

            def notify(charge: Any, amount: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"WithContext\.notify\(amount, context\)"):

        class WithContext(Reactor):
            amount = Input(int)

            def notify(amount: Any, context: Any) -> None: ...


@pytest.mark.parametrize("value", [3, lambda: 1, property(), "x", Input(int)])
def test_what_stands_over_an_inherited_step_is_a_step_or_none(value: Any) -> None:
    """Anything else took the step away, as a forgotten @step does."""

    class Base(Reactor):
        charge = step(Charge)
        notify = step(Charge)

    with pytest.raises(DefinitionError, match=r"Child\.notify = .* stands over the step 'notify' of Base.* None"):
        type("Child", (Base,), {"notify": value})
    less: type[Reactor] = type("Less", (Base,), {"notify": None})
    assert list(less.definition.steps) == ["charge"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("retri", "retry"), ("retyr", "retry"), ("retr", "retry"), ("rettry", "retry"), ("xretry", "retry"), ("entry", ""),
        ("retry", ""), ("retryd", ""), ("gaurd", "guard"), ("guards", "guard"), ("ran", ""), ("undo_", "undo"), ("redo", ""),
        ("", ""), ("compensated", ""), ("compensates", "compensate"), ("compnesate", "compensate"),
    ],
)  # fmt: skip
def test_a_near_miss_is_one_slip_away(name: str, meant: str) -> None:
    assert near_miss(name, {"retry", "guard", "run", "undo", "compensate"}) == meant


def test_a_declaration_that_comes_too_late_is_refused() -> None:
    """A subclass, and a reactor that had used the step, went on without it."""

    class Used(Step):
        def run(self) -> None: ...

    class Flow(Reactor):
        used = step(Used)

    with pytest.raises(DefinitionError, match=r"with_lock was put on Used after Flow had been built with it"):
        with_lock("a")(Used)

    class Base(Step):
        def run(self) -> None: ...

    class Child(Base): ...

    with pytest.raises(DefinitionError, match=r"with_semaphore was put on Base after its subclass Child"):
        with_semaphore("a", limit=1)(Base)

    class Whole(Reactor):
        used = step(Used)

    class Part(Whole): ...

    with pytest.raises(DefinitionError, match=r"with_lock was put on Whole after its subclass Part"):
        with_lock("a")(Whole)
    with_lock("a")(Child), with_lock("a")(Part)
