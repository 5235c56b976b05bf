"""Reactors: compiled at import, with every mistake told there, by place and by fix."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from pydantic import BaseModel

from reactor_coord import (
    DefinitionError,
    Input,
    InputValidationError,
    NotRunnable,
    Reactor,
    Retry,
    Step,
    async_reactor,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    with_lock,
)
from reactor_coord.declare import entrance as port
from reactor_coord.declare.entrance import RunOptions


class Charge(Step):
    """Two inputs, one optional."""

    account_id = Input(int)
    amount = Input(int)
    note = Input(str, required=False)
    retry = Retry(3)

    def run(self) -> Any: ...


class Named(Step):
    """An input whose name is an option of step()."""

    name = Input(str)

    def run(self) -> Any: ...


class Empty(Step):
    """No work."""


class Answer(BaseModel):
    """A payload as a model."""

    approved: bool


class Payment(Reactor):
    """Pay."""

    account_id = Input(int)
    amount = Input(int)

    audit = step(Charge)
    charge = step(Charge, after=audit, note="n")
    notify = step(Charge, amount=charge["left"], after=[audit, charge])
    returns = charge


def make(name: str = "Bad", /, **body: Any) -> type[Reactor]:
    inputs = {"account_id": Input(int), "amount": Input(int)}
    return type(name, (Reactor,), {**inputs, **body})


def test_the_definition_says_it_all_and_is_frozen() -> None:
    definition = Payment.definition
    assert definition.name == f"{__name__}.Payment"
    assert (definition.label, definition.doc, definition.cls) == ("Payment", "Pay.", Payment)
    assert list(definition.steps) == ["audit", "charge", "notify"]
    assert [step.index for step in definition.steps.values()] == [0, 1, 2]
    charge = definition.step("charge")
    assert (charge.after, charge.depends_on) == (frozenset({"audit"}), frozenset({"audit"}))
    assert definition.step("notify").depends_on == {"audit", "charge"}
    assert charge.schema is Charge.inputs_schema
    assert charge.retry == Retry(3)
    assert definition.returns is not None
    assert definition.returns.steps() == {"charge"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        definition.label = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        definition.steps["x"] = charge  # type: ignore[index]


def test_the_last_step_is_returned_by_default_and_a_path_or_mapping_may_be() -> None:
    first = step(Charge)
    flow = make(first=first, second=step(Charge))
    assert flow.definition.returns is not None
    assert flow.definition.returns.steps() == {"second"}
    first = step(Charge)
    flow = make(first=first, returns={"a": first["x"], "b": first})
    assert flow.definition.returns is not None
    assert flow.definition.returns.steps() == {"first"}


def test_u114_an_input_may_be_what_is_returned() -> None:
    class Base(Reactor):
        account_id = Input(int)
        amount = Input(int)
        charge = step(Charge)
        returns = amount

    class Child(Base):
        returns = Base.account_id

    class Renamed(Base):
        amount = Input(int, default=1)
        returns = amount

    assert [flow.definition.returns for flow in (Base, Child)] == [Base.amount, Base.account_id]
    assert list(Child.definition.schema.fields) == ["account_id", "amount"]
    assert Renamed.definition.returns is Renamed.amount
    for alone in ("returns", "background_after"):
        with pytest.raises(DefinitionError, match=f"an input cannot be named '{alone}'"):
            make(a=step(Charge), **{alone: Input(int)})
    with pytest.raises(DefinitionError, match=r"Bad\.background_after = .*must be a step of Bad"):
        make(**dict.fromkeys(("value", "background_after"), Input(int)), a=step(Charge))


def test_an_unwired_input_comes_from_the_reactors_input_of_its_name() -> None:
    arguments = Payment.definition.step("audit").arguments
    assert {name: ref.inputs() for name, ref in arguments.items()} == {
        "account_id": {"account_id"},
        "amount": {"amount"},
    }


def test_options_of_step_win_over_the_class() -> None:
    flow = make(work=step(Charge, retry=Retry(9)))
    assert flow.definition.step("work").retry == Retry(9)


def test_an_input_named_like_an_option_can_be_wired() -> None:
    text = Input(str)
    flow = make(name=Input(str), a=step(Named), b=step(Named, arguments={"name": "x"}))
    assert flow.definition.step("a").arguments["name"].inputs() == {"name"}
    other = make(text=text, work=step(Named, name=text))
    assert other.definition.step("work").arguments["name"].inputs() == {"text"}
    with pytest.raises(DefinitionError, match=r"could be the step's name or the input 'name' of Named.*arguments="):
        make(work=step(Named, name="x"))


def test_a_step_may_have_a_name_of_its_own() -> None:
    first = step(Charge, name="first-try")
    flow = make(a=first, b=step(Charge, amount=first["x"]))
    assert list(flow.definition.steps) == ["first-try", "b"]
    assert flow.definition.step("b").depends_on == {"first-try"}


def test_where_reads_arguments_and_inputs_by_name() -> None:
    flow = make(
        a=step(Charge, where=lambda amount: amount > 0),
        b=step(Charge, where=lambda limit, amount: amount > limit, limit=5),
        c=step(Charge, where=lambda **all_of_them: bool(all_of_them)),
        d=step(Charge, where=lambda: True),
        e=step(Charge, account_id=1, where=lambda amount, fallback=3: amount > fallback),
    )
    names = {name: step.where_names for name, step in flow.definition.steps.items()}
    assert names["a"] == {"amount"}
    assert names["b"] == {"limit", "amount"}
    assert names["c"] >= {"account_id", "amount"}
    assert names["d"] == frozenset()
    assert names["e"] == {"amount"}
    assert "limit" in flow.definition.step("b").arguments


def test_a_subclass_inherits_replaces_and_takes_away() -> None:
    class Child(Payment):
        extra = Input(int, default=1)
        charge = step(Charge, amount=extra)
        notify = None  # type: ignore[assignment]
        more = step(Charge, amount=Payment.charge["x"])

    definition = Child.definition
    assert list(definition.steps) == ["audit", "charge", "more"]
    assert definition.step("charge").arguments["amount"].inputs() == {"extra"}
    assert definition.step("more").depends_on == {"charge"}
    assert list(definition.schema.fields) == ["account_id", "amount", "extra"]
    assert definition.returns is not None
    assert definition.returns.steps() == {"charge"}
    assert list(Payment.definition.steps) == ["audit", "charge", "notify"]


def test_a_mixin_brings_steps() -> None:
    class Audited:
        audit = step(Charge)

    flow: type[Reactor] = type("Flow", (Audited, Reactor), {"account_id": Input(int), "amount": Input(int)})
    assert list(flow.definition.steps) == ["audit"]


def test_what_is_redacted_follows_the_references() -> None:
    secret = Input(int, redact=True)
    cards = Input(list[int], redact=True)
    flow = make(
        secret=secret,
        cards=cards,
        a=step(Charge, amount=secret.map(abs)),
        b=map_each(Charge, over=cards, account_id=1, amount=element()),
        c=step(Charge),
    )
    redacted = {name: step.redacted for name, step in flow.definition.steps.items()}
    assert redacted == {"a": {"amount"}, "b": {"amount"}, "c": frozenset()}
    assert flow.definition.schema.redacted == {"secret", "cards"}


def test_the_other_words_compile() -> None:
    flow = make(
        nested=compose(Payment),
        late=async_step(Charge),
        far=async_reactor(Payment, detach=True),
        each=map_each(Payment, over=[1, 2], fail_fast=False, concurrency=2, collect=sum),
        ask=interrupt(payload=Answer, timeout=60, correlation_id="fixed"),
    )
    steps = flow.definition.steps
    assert [step.kind for step in steps.values()] == ["compose", "async_step", "async_reactor", "map", "interrupt"]
    assert steps["nested"].reactor_class is Payment
    assert steps["nested"].schema is Payment.definition.schema
    assert steps["late"].step_class is Charge
    assert steps["far"].options == {"detach": True, "fails_parent": True}
    assert steps["each"].options["concurrency"] == 2
    payload = steps["ask"].options["payload"]
    assert payload.validate({"approved": True}) == Answer(approved=True)
    with pytest.raises(InputValidationError) as caught:
        payload.validate({}, "review")
    assert caught.value.fields == {"approved": ["Field required"]}
    with pytest.raises(InputValidationError, match="must be an object with a"):
        make(ask=interrupt(payload={"a": int})).definition.step("ask").options["payload"].validate("text")


def test_the_fingerprint_follows_the_shape_and_not_the_options() -> None:
    def print_of(**body: Any) -> str:
        return make("Same", **body).definition.fingerprint

    plain = print_of(a=step(Charge), b=step(Charge))
    assert plain == print_of(a=step(Charge), b=step(Charge))
    assert plain == print_of(a=step(Charge, retry=Retry(9), coordination=[with_lock("x")]), b=step(Charge))
    others = [
        print_of(a=step(Charge)),
        print_of(b=step(Charge), a=step(Charge)),
        print_of(a=step(Charge), b=step(Charge, after="a")),
        print_of(a=step(Charge), b=async_step(Charge)),
        print_of(a=step(Charge, amount=1), b=step(Charge)),
        print_of(a=step(Charge), b=step(Charge), more=Input(int)),
    ]
    assert plain not in others
    assert len(set(others)) == len(others)


def test_decorating_a_reactor_keeps_its_fingerprint_and_is_seen_in_its_definition() -> None:
    flow = make("Flow", work=step(Charge))
    before = flow.definition.fingerprint
    with_lock("acct:{account_id}")(flow)
    assert flow.definition.fingerprint == before
    assert list(flow.definition.coordination) == ["lock"]


other_charge = Payment.charge


@pytest.mark.parametrize(
    ("build", "words"),
    [
        # wiring
        (
            lambda: type("Bad", (Reactor,), {"amount": Input(int), "work": step(Charge)}),
            (
                r"step 'work' of Bad: nothing wires the input 'account_id' of Charge\. Either pass it, as in "
                r"step\(Charge, account_id=\.\.\.\), or declare account_id = Input\(int\) on Bad"
            ),
        ),
        (
            lambda: make(work=step(Charge, amuont=1)),
            "step 'work' of Bad: Charge has no input 'amuont'. Did you mean 'amount'",
        ),
        (lambda: make(work=step(Charge, atomic=True)), "no option 'atomic'.*declare it on Charge"),
        (lambda: make(work=compose(Payment, retry=3)), "must be a Retry"),  # type: ignore[arg-type]
        (lambda: make(work=interrupt(amount=3)), "interrupt takes no argument 'amount' unless where= reads it"),
        (lambda: make(work=step(Charge, arguments={"amount": 1}, amount=2)), "'amount' is given twice"),
        (lambda: make(work=step(Charge, arguments=3)), "arguments takes a mapping"),  # type: ignore[call-overload]
        (
            lambda: make(work=step(Charge, amount=Charge.amount)),
            "amount=amount is an input of Charge, which Bad does not",
        ),
        (lambda: make(work=step(Charge, amount=Input(int))), "given an Input of its own; declare it on Bad"),
        (
            lambda: make(work=step(Charge, amount=other_charge)),
            "amount=charge is a step of Payment, not of Bad; use compose",
        ),
        (lambda: make(work=step(Charge, amount=step(Charge))), "no step of Bad; put it into the class body"),
        (lambda: make(work=step(Charge, after=other_charge)), "after=charge is a step of Payment"),
        # after
        (lambda: make(work=step(Charge, after=3)), "after=3: after takes a step of Bad"),  # type: ignore[call-overload]
        (lambda: make(work=step(Charge, after="wrok")), "depends on 'wrok'.*no such step.*Did you mean 'work'"),
        (lambda: make(work=step(Charge, after="work")), "in a ring: work -> work"),
        (
            lambda: make(a=step(Charge, after="c"), b=step(Charge, after="a"), c=step(Charge, after="b")),
            r"Bad: its steps wait for each other in a ring: a -> c -> b -> a \(each needs the next\)",
        ),
        # where
        (lambda: make(work=step(Charge, where=False)), "where=False has its value while the class is being built"),  # type: ignore[call-overload]
        (lambda: make(work=step(Charge, where=lambda amuont: 1)), "where reads 'amuont'.*Did you mean 'amount'"),
        (lambda: make(work=step(Charge, where=Charge)), "where=Charge is a class"),
        (
            lambda: make(work=step(Charge, where=lambda context: context.attempt)),
            "where gets .* no context",
        ),
        # targets
        (lambda: step(Payment), r"step\(Payment, \.\.\.\): that is a reactor; write compose\(Payment"),
        (lambda: compose(Charge), r"that is a step; write step\(Charge"),  # type: ignore[arg-type]
        (lambda: async_step(Payment), r"write async_reactor\(Payment"),  # type: ignore[arg-type]
        (lambda: async_reactor(Charge), r"write async_step\(Charge"),  # type: ignore[arg-type]
        (lambda: step(int), "subclass of Step"),
        (lambda: step(Step), "subclass of Step"),
        (lambda: compose(Reactor), "subclass of Reactor"),
        (lambda: map_each(3, over=[1]), "a Step or a Reactor class"),  # type: ignore[arg-type]
        (lambda: step(Empty), r"Empty has no run\(self\)"),
        (lambda: compose(make("Abstract")), "Abstract has no steps"),
        # names
        (lambda: make(run=step(Charge)), "a step cannot be named 'run'"),
        (lambda: make(queue=Input(str)), "an input cannot be named 'queue'"),
        (lambda: make(a=step(Charge, name="1 2")), "name='1 2' must be a text of letters"),
        (lambda: make(a=step(Charge, name="b"), b=step(Charge)), "two steps are named 'b'"),
        (lambda: make(charge=other_charge), "the very step of Payment"),
        (lambda: make(**dict.fromkeys(("a", "b"), step(Charge))), "one step stands under two names, 'a' and 'b'"),
        # attributes
        (lambda: make(a=step(Charge), returns="b"), "Bad.returns: Bad has no step 'b'"),
        (lambda: make(a=step(Charge), returns=other_charge), "returns=charge is a step of Payment"),
        (lambda: make(a=step(Charge), returns=3), "Bad.returns = 3: must be a step"),
        (lambda: make(a=step(Charge), background_after="b"), "Bad.background_after: Bad has no step 'b'"),
        (lambda: make(a=step(Charge), background_before=3), "Bad.background_before = 3"),
        (lambda: make(queue=3), "Bad.queue = 3"),
        (lambda: make(on_crash="restart"), "Bad.on_crash = 'restart': must be 'abort' or 'resume'"),
        (lambda: make(allow_in_atomic=1), "Bad.allow_in_atomic = 1"),
        # options of the other words
        (lambda: map_each(Charge, over=3), "map_each.over=3.: over must be a reference to a list"),
        (lambda: map_each(Charge, over=[1], batch_size=0), "batch_size must be a whole number"),
        (lambda: map_each(Charge, over=[1], collect=3), "collect must be a function"),  # type: ignore[arg-type]
        (lambda: map_each(Charge, over=[1], fail_fast=1), "fail_fast must be True or False"),  # type: ignore[arg-type]
        (lambda: interrupt(payload=3), "pydantic model class"),
        (lambda: interrupt(payload={"a": "int"}), "give the type itself"),
        (lambda: interrupt(timeout=0), "timeout"),
        (lambda: interrupt(correlation_id=3), "correlation_id must be a text"),
        (lambda: async_step(Charge, detach=1), "detach must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_right_is_refused_at_import_by_place_and_fix(build: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        build()


def test_taking_away_a_step_that_others_need_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"step 'notify' of Less: it depends on 'charge', and Less has no such step"
    ):
        type("Less", (Payment,), {"charge": None, "returns": None})


def test_it_is_not_instantiated() -> None:
    with pytest.raises(DefinitionError, match=r"Payment\.run\("):
        Payment()


def test_an_unknown_step_of_a_definition_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"Payment has no step 'chrage'\. Did you mean 'charge'\?"):
        Payment.definition.step("chrage")


class FakeEntrance:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.asked.append((name, *args))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    fake = FakeEntrance()
    monkeypatch.setattr(port, "_bound", [fake])
    return fake.asked


def test_running_goes_through_the_entrance_with_options(asked: list[tuple[Any, ...]]) -> None:
    Payment.run(account_id=1)
    Payment.options(idempotency_key="k", queue="q", countdown=dt.timedelta(seconds=2), tags={"a": 1}).enqueue(amount=2)
    Payment.resume("order-1", step=Payment.charge, payload={"a": 1})
    Payment.resume(5)
    definition = Payment.definition
    options = RunOptions(idempotency_key="k", queue="q", countdown=2.0, tags={"a": 1})
    assert asked == [
        ("run", definition, {"account_id": 1}, RunOptions()),
        ("enqueue", definition, {"amount": 2}, options),
        ("resume", definition, "order-1", "charge", {"a": 1}),
        ("resume", definition, "5", None, None),
    ]


def test_a_reactor_without_steps_is_abstract_and_does_not_run(asked: list[tuple[Any, ...]]) -> None:
    abstract = make("Abstract")
    assert abstract.definition.returns is None
    for call in (abstract.run, abstract.enqueue, Reactor.run):
        with pytest.raises(NotRunnable, match="has no steps"):
            call()
    assert asked == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "x" * 201}, "1 to 200"),
        ({"queue": 3}, "queue"),
        ({"countdown": -1}, "countdown"),
        ({"tags": [1]}, "tags"),
        ({"tags": {1: 2}}, "text keys"),
        ({"allow_in_atomic": 1}, "allow_in_atomic"),
    ],
)
def test_bad_run_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Payment.options(**options)


def test_resume_refuses_an_unknown_step(asked: list[tuple[Any, ...]]) -> None:
    with pytest.raises(DefinitionError, match="no step 'reviwe'"):
        Payment.resume("x", step="reviwe")
    assert asked == []


def test_a_class_without_step_around_it_is_refused_unless_it_is_written_there() -> None:
    with pytest.raises(DefinitionError, match=r"Bad\.charge is the class Charge .*write charge = step\(Charge"):
        make(charge=Charge)
    with pytest.raises(DefinitionError, match=r"Bad\.pay is the class Payment .*write pay = compose\(Payment"):
        make(pay=Payment)

    class Flow(Reactor):
        class Inner(Step):
            def run(self) -> Any: ...

        inner = step(Inner)

    class Longer(Flow):
        again = step(Flow.Inner)

    assert list(Longer.definition.steps) == ["inner", "again"]
