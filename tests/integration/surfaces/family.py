"""Reactors of which each meets one primitive, so that there is something of all five to look at."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from reactor_coord import (
    Input,
    Reactor,
    Step,
    async_step,
    compose,
    element,
    interrupt,
    map_each,
    step,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)


class Pack(Reactor):
    """Two packers at a time."""

    key = Input(str)

    @step(key=key)
    @with_semaphore("{key}", limit=2, ttl=30)
    def pack(key: str) -> str:
        return key


class Post(Reactor):
    """Two letters an hour."""

    key = Input(str)

    @step(key=key)
    @with_rate_limit("{key}", limit=2, period=3600)
    def letter(key: str) -> str:
        return key


class Report(Reactor):
    """Once a day."""

    key = Input(str)

    @step(key=key)
    @with_period("{key}", every="day")
    def write(key: str) -> str:
        return key


class Book(Reactor):
    """In the order of arrival."""

    key = Input(str)

    @step(key=key)
    @with_ordered_lock("{key}", strict=False)
    def entry(key: str) -> str:
        return key


class Approval(Reactor):
    """A question with a shape."""

    order = Input(str)

    ask = interrupt(
        correlation_id=order,
        payload={
            "approved": bool,
            "amount": Input(Decimal, gt=0),
            "way": Literal["post", "courier"],
            "note": Input(str, default=""),
            "code": Input(str, default="", redact=True),
            "lines": Input(list[int], required=False),
        },
        timeout=3600,
    )

    @step(decision=ask)
    def decide(decision: dict[str, object]) -> object:
        return decision["approved"]

    returns = decide


class Anything(Reactor):
    """A question that takes any answer."""

    order = Input(str)

    say = interrupt(correlation_id=order)


class Signed(Reactor):
    """The question is one level down."""

    order = Input(str)

    inner = compose(Anything, order=order)


class Number(Step):
    """One element."""

    number = Input(int)

    def run(self) -> int:
        if self.number < 0:
            raise ValueError(f"{self.number} is below zero")
        return self.number


class Spread(Reactor):
    """A unit on the side, and a fan-out."""

    numbers = Input(list[int])

    alone = async_step(Number, number=7)
    spread = map_each(Number, over=numbers, number=element(), fail_fast=False, concurrency=3)
    end = step(Number, number=1, after=[spread, alone])

    returns = end
