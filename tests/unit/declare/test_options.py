"""A misspelt option is told at the line that has it, with the one that was meant."""

# mypy: disable-error-code="call-arg, arg-type"
# A type checker refuses them too: the decorator that checks a call keeps the signature.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reactor_coord import (
    DefinitionError,
    Input,
    NotRunnable,
    Reactor,
    Retry,
    Step,
    async_step,
    interrupt,
    map_each,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)


class Charge(Step):
    """One input."""

    amount = Input(int, default=1)

    def run(self) -> None: ...


class Payment(Reactor):
    """One step."""

    charge = step(Charge)


def reactor(**body: Any) -> type[Reactor]:
    return type("Bad", (Reactor,), body)


def inline(amount: Any = 1) -> Any:
    return amount


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_lock("a", tll=30), r"^with_lock\(tll=30\): with_lock has no option 'tll'\. Did you mean 'ttl'\?"),
        (lambda: with_lock("a", on_contention_="wait"), "Did you mean 'on_contention'"),
        (lambda: with_lock("a", lease=3), r"with_lock has no option 'lease'.* Its options are ttl, wait, "),
        (lambda: with_semaphore("a", limits=3), "Did you mean 'limit'"),
        (lambda: with_semaphore("a"), r"with_semaphore\(\.\.\.\): missing a required argument: 'limit'"),
        (lambda: with_semaphore("a", 3), r"too many positional arguments\. Its options are .*each given by its name"),
        (lambda: with_rate_limit("a", limt=3, period=1), "Did you mean 'limit'"),
        (lambda: with_period("a", evry="day"), "Did you mean 'every'"),
        (lambda: with_period("a", "day"), "too many positional"),
        (lambda: with_ordered_lock("a", stict=True), "Did you mean 'strict'"),
        (
            lambda: Payment.options(idempotncy_key="k"),
            r"^Payment\.options\(idempotncy_key='k'\): .*Did you mean 'idempotency_key'\?",
        ),
        (lambda: Payment.options("k"), r"Payment\.options\(\.\.\.\): too many positional"),
        (lambda: Payment.resume("x", paylod={}), r"Payment\.resume\(paylod=\{\}\): .*Did you mean 'payload'"),
        (lambda: Retry(max_atempts=3), r"^Retry\(max_atempts=3\): .*Did you mean 'max_attempts'"),
        (lambda: Retry(), r"Retry\(\.\.\.\): missing a required argument: 'max_attempts'"),
        (lambda: Retry(3, delay=2), r"Its options are max_attempts, backoff, base_delay, max_delay, jitter, on"),
        (lambda: map_each(Charge), "missing a required argument: 'over'"),
        (lambda: Input(int, defualt=3), "Did you mean 'default'"),
        (lambda: Input(int, redacted=True), "Did you mean 'redact'"),
        (
            lambda: reactor(a=step(Charge, retires=Retry(3))),
            "step 'a' of Bad: Charge has no input 'retires'. Did you mean 'retry'",
        ),
        (lambda: reactor(a=step(Charge, aftr=())), "Did you mean 'after'"),
        (lambda: reactor(a=step(atomc=True)(inline)), "inline has no parameter 'atomc'. Did you mean 'atomic'"),
        (lambda: reactor(a=map_each(Charge, over=[1], concurency=2)), "Did you mean 'concurrency'"),
        (lambda: reactor(a=async_step(Charge, detached=True)), "Did you mean 'detach'"),
        (lambda: reactor(a=interrupt(timout=3)), "Did you mean 'timeout'"),
    ],
)
def test_u56_a_misspelt_option_is_told_with_the_one_that_was_meant(make: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make()


def test_a_name_of_both_an_input_and_an_option_is_told_as_what_is_nearer() -> None:
    with pytest.raises(DefinitionError, match="Did you mean 'amount'"):
        reactor(a=step(Charge, amuont=1))


@pytest.mark.parametrize("name", ["limit", "priority"])
def test_numbers_beyond_what_can_be_told_apart_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"{name} must be a whole number"):
        with_semaphore("a", **{"limit": 1, name: 10**13})
    with pytest.raises(DefinitionError, match="of thousands of digits"):
        with_semaphore("a", **{"limit": 1, name: 10**5000})


def test_a_declared_priority_never_stands_beside_a_rollbacks() -> None:
    """They were cut at the highest one: two that were higher still were equals."""
    with_lock("a", priority=65_534), with_lock("a", priority=-65_534)
    for priority in (65_535, -65_535):
        with pytest.raises(DefinitionError, match="priority must be a whole number from -65,534 to 65,534"):
            with_lock("a", priority=priority)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_duration_that_is_no_float_is_refused_like_any_other(digits: int) -> None:
    with pytest.raises(DefinitionError, match="longer than ten years"):
        with_lock("a", ttl=10**digits)
    with pytest.raises(DefinitionError, match="longer than ten years"):
        Payment.options(countdown=10**digits)


def test_u119_a_countdown_means_nothing_to_a_run_that_begins_here_and_now() -> None:
    with pytest.raises(NotRunnable, match=r"Payment\.options\(countdown=5\)\.run\(\): .*Use enqueue\(\)"):
        Payment.options(countdown=5).run()


class Lazy:
    """Stands for a queryset: to print it is to ask the database."""

    def __repr__(self) -> str:
        raise AssertionError("an error message asked it to print itself")


@pytest.mark.parametrize(
    "make",
    [
        lambda lazy: with_lock("a", ttl=lazy),
        lambda lazy: with_lock(lazy),
        lambda lazy: with_rate_limit("a", limits=lazy),
        lambda lazy: Retry(lazy),
        lambda lazy: Retry(3, on=(lazy,)),
        lambda lazy: Input(int, default=lazy),
        lambda lazy: Input(int, gt=lazy),
        lambda lazy: step(Charge, retry=lazy),
        lambda lazy: step(lazy),
        lambda lazy: step(Charge, coordination=[lazy]),
        lambda lazy: map_each(Charge, over=lazy),
        lambda lazy: map_each(Charge, over=[1], collect=[lazy]),
        lambda lazy: interrupt(payload=lazy),
        lambda lazy: interrupt(correlation_id=lazy),
        lambda lazy: Payment.options(tags=lazy),
        lambda lazy: reactor(a=step(Charge, after=lazy)),
        lambda lazy: reactor(a=step(Charge, where=lazy)),
        lambda lazy: reactor(a=step(Charge), returns=lazy),
        lambda lazy: reactor(a=step(Charge), returns={"a": [lazy]}),
        lambda lazy: reactor(a=step(Charge), queue=lazy),
        lambda lazy: reactor(a=step(Charge), background_after=lazy),
        lambda lazy: type("Bad", (Step,), {"atomic": lazy}),
    ],
)
def test_an_error_message_does_no_work(make: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Lazy|<list>|<dict>"):
        make(Lazy())


async def later(value: Any) -> Any: ...


def values(value: Any) -> Iterator[Any]:
    yield value


AMOUNT = Input(int)


@pytest.mark.parametrize(
    "take",
    [
        lambda function: AMOUNT.map(function),
        lambda function: map_each(Charge, over=[1], collect=function),
        lambda function: with_lock(function),
    ],
)
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (later, "later is async, and its answer would never be awaited"),
        (values, "values has a yield in it"),
        (lambda: 1, r"<lambda>\(\) is called with .*, which it does not take: too many positional arguments"),
        (lambda one, other: 1, "missing a required argument: 'other'"),
    ],
)
def test_a_function_that_could_not_be_called_is_refused_where_it_is_written(
    take: Any, function: Any, words: str
) -> None:
    with pytest.raises(DefinitionError, match=words):
        take(function)


def test_so_is_a_source_of_a_map_that_wants_arguments() -> None:
    with pytest.raises(
        DefinitionError, match=r"map_each\(over=\.\.\.\): the function <lambda>\(day\) is called with nothing"
    ):
        map_each(Charge, over=lambda day: [day])


@pytest.mark.parametrize(
    "function", [int, abs, len, str.upper, "{}".format, dict.fromkeys, lambda value, more=1: value]
)
def test_a_function_that_can_be_called_is_taken(function: Any) -> None:
    AMOUNT.map(function)
    map_each(Charge, over=[1], collect=function)
