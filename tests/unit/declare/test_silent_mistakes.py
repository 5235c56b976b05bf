"""Declarations that were taken without a word, and meant something else or nothing at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from reactor_coord import (
    CoordinationKeyError,
    DefinitionError,
    Input,
    InputValidationError,
    Reactor,
    ReactorFailed,
    Retry,
    Step,
    interrupt,
    step,
    with_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.engine.settlement import settle
from reactor_coord.errors import ReactorCoordError
from reactor_coord.results import Failure


class Charge(Step):
    """Two inputs that may be left out."""

    amount = Input(int, default=1)
    note = Input(str, default="")

    def run(self) -> None: ...


def flow(**body: Any) -> type[Reactor]:
    return type("Flow", (Reactor,), body)


# ---- references have no value while the class is being built


def test_a_comparison_of_a_reference_is_refused() -> None:
    """`flag=amount == 5` was False for every amount."""
    amount = Input(int)
    comparisons: list[Callable[[], object]] = [
        lambda: amount == 5,
        lambda: amount != 5,
        lambda: amount in (5, 6),
        lambda: step(Charge)["x"] == "y",
    ]
    for compare in comparisons:
        with pytest.raises(DefinitionError, match=r"was compared with .* where it has no value; compare in where="):
            compare()
    same = amount
    assert amount == same
    assert amount != Input(int)
    assert (amount == None) is False  # noqa: E711
    assert len({amount, same}) == 1


@pytest.mark.parametrize("write", [lambda ref: "acct:%s" % ref, str, "{}".format, "acct:{!s}".format])  # noqa: UP031
def test_a_reference_put_into_a_text_is_refused(write: Any) -> None:
    """`"acct:%s" % account` was one text for every account."""
    amount = Input(int)
    for reference in (amount, step(Charge), step(Charge)["receipt"], amount.map(abs)):
        with pytest.raises(DefinitionError, match="was put into a text while the class is being built"):
            write(reference)
    assert repr(amount) == "Input(int)"


def test_the_name_of_a_declaration_is_not_taken_for_a_value() -> None:
    """`subject=product.name` was an empty text for every product, or the text "product"."""
    words = r"own name and no part of its value\. Write order\[\"name\"\]"
    with pytest.raises(DefinitionError, match=words):

        class Flow(Reactor):
            product = step(Charge)
            mail = step(Charge, note=product.name)

    with pytest.raises(DefinitionError, match=words):

        class Other(Reactor):
            order = Input(dict[str, str])
            mail = step(Charge, note=order.name)

    class Named(Reactor):
        product = step(Charge)
        mail = step(Charge, note=product["name"])

    with pytest.raises(DefinitionError, match=words):
        step(Charge, note=Named.product.name)
    assert {type(name) for name in Named.definition.steps} == {str}
    assert {type(each.name) for each in Named.definition.steps.values()} == {str}


# ---- what comes when the class has been built


def test_a_rollback_or_a_lock_for_a_step_that_is_built_is_refused() -> None:
    """The reactor went on without it, and its next subclass had it."""

    class Flow(Reactor):
        @step()
        def notify() -> int:
            return 1

    for late in (Flow.notify.undo, Flow.notify.compensate, Flow.notify.guard):
        with pytest.raises(DefinitionError, match=r"@notify\.\w+: Flow has been built with the step notify as it was"):
            late(lambda: None)
    with pytest.raises(DefinitionError, match="with_lock: Flow has been built with the step notify"):
        with_lock("a")(Flow.notify)


@pytest.mark.parametrize("value", [5, "x", lambda amount: amount, [1]])
def test_a_plain_value_over_an_inherited_input_of_a_reactor_is_refused(value: Any) -> None:
    """It took the input away, and steps went on with their own defaults."""
    base = flow(amount=Input(int), charge=step(Charge))
    with pytest.raises(
        DefinitionError, match=r"Fixed\.amount = .* stands over the input 'amount', and no step would read it"
    ):
        type("Fixed", (base,), {"amount": value})
    less: type[Reactor] = type("Less", (base,), {"amount": None})
    assert not less.definition.schema.fields

    class Fixed(Charge):
        amount = 5

    assert Fixed.bind({}, None).amount == 5


# ---- options that contradict each other


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Input(int, default=1, required=True), "required=True and a default contradict each other"),
        (lambda: Input(list, default_factory=list, required=True), "contradict each other"),
        (lambda: Input(int, required="no"), "required='no' must be True or False"),  # type: ignore[call-overload]
        (lambda: Input(int, redact="yes"), "redact='yes' must be True or False"),  # type: ignore[call-overload]
        (
            lambda: with_rate_limit("a", limit=1, period=1, on_contention="wait"),
            "must be one of 'park', 'fail', 'skip'",
        ),
        (lambda: with_period("a", every=3600, timezone="Europe/Berlin"), "means nothing with every=3600"),
        (lambda: with_period("a", every=dt.timedelta(hours=1), timezone="Europe/Berlin"), "means nothing"),
        (lambda: with_lock("a", on_contention="fail", max_wait=5), r"max_wait means nothing with on_contention='fail'"),
        (lambda: with_lock("a", on_contention="wait", wait=1, max_wait=5), "which never parks"),
        (lambda: with_lock("a", on_contention="skip", priority=5), "priority means nothing .* never stands in line"),
        (lambda: with_semaphore("a", limit=1, on_contention="fail", max_waiting=5), "max_waiting means nothing"),
        (lambda: Retry(3, base_delay=10, max_delay=5), r"max_delay is shorter than base_delay \(10\)"),
        (lambda: Retry(3, on=(InputValidationError,)), "InputValidationError is never retried"),
        (lambda: Retry(3, on=(ConnectionError, CoordinationKeyError)), "CoordinationKeyError is never retried"),
        (lambda: Retry(3, on=(ReactorFailed,)), "ReactorFailed is never retried"),
    ],
)
def test_options_of_which_one_would_be_ignored_are_refused(make: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make()


def test_what_goes_together_is_taken() -> None:
    assert Input(int, required=True).definition.required
    assert not Input(int, default=1).definition.required
    with_lock("a", on_contention="wait", wait=1, priority=5, max_waiting=3)
    with_lock("a", on_contention="fail", wait=30)
    Retry(3, base_delay=5, max_delay=5, on=(ReactorCoordError, ConnectionError))
    assert (
        settle(
            Failure(InputValidationError()), began=True, retry=Retry(3, on=(ReactorCoordError,)), attempts=1, chance=0
        ).retry_in
        is None
    )


# ---- what is redacted stays so


def test_a_redacted_input_that_would_be_shown_is_refused() -> None:
    card = Input(str, redact=True)
    ask = interrupt(correlation_id=card.map("card-{}".format))
    with pytest.raises(DefinitionError, match=r"step 'ask' of Flow: correlation_id reads the redacted input 'card'"):
        flow(card=card, ask=ask)
    card = Input(str, redact=True)
    with pytest.raises(DefinitionError, match=r"Flow\.returns reads the redacted input 'card': the value .* is shown"):
        flow(card=card, charge=step(Charge), returns={"card": card})
