"""What the four lives of an execution cost: queries, transactions, round trips to Redis, messages.

The counts are those of the design's walkthrough. On PostgreSQL a checkpoint is one statement; elsewhere it is one transaction
of a few, so there transactions are counted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from reactor_coord import (
    Input,
    Reactor,
    Step,
    compose,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import client
from tests.support.counting import counted_queries

pytestmark = pytest.mark.django_db(transaction=True)

ON_POSTGRESQL = connection.vendor == "postgresql"

CLAIM_READS = 0 if ON_POSTGRESQL else 1
"""Where an update cannot answer with the row, the row is read after the claim."""


class Plain(Step):
    """Declares nothing."""

    def run(self) -> str:
        return self.context.step


@with_lock("{key}", ttl=30)
class Locked(Step):
    """Declares a lock."""

    key = Input(str)

    def run(self) -> str:
        return self.context.step

    def undo(self, result: str) -> None:
        """Something to be done under the lock."""


class Fails(Step):
    """For the rollback."""

    def run(self) -> None:
        self.fail("told to", retryable=False)


class Payment(Reactor):
    """audit, charge (locked), notify."""

    key = Input(str)
    audit = step(Plain)
    charge = step(Locked, after=audit)
    notify = step(Plain, after=charge)


class FailingPayment(Reactor):
    """audit, charge (locked), notify fails."""

    key = Input(str)
    audit = step(Plain)
    charge = step(Locked, after=audit)
    notify = step(Fails, after=charge)


class Uncoordinated(Reactor):
    """Three plain steps."""

    a = step(Plain)
    b = step(Plain, after=a)
    c = step(Plain, after=b)


@with_lock("order:{order}", ttl=30)
class Order(Reactor):
    """A reactor under its own lock that composes a payment."""

    order = Input(str)
    key = Input(str)
    payment = compose(Payment)


class Spent:
    """What a block cost. Read it after the block."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.commands: list[str] = []

    @property
    def transactions(self) -> int:
        """How many transactions wrote: each checkpoint is one, whatever it is made of."""
        writes = 0
        is_open = wrote = False
        for sql in self.queries:
            verb = sql.split(None, 1)[0].upper()
            if verb == "BEGIN":
                is_open, wrote = True, False
            elif verb in {"COMMIT", "ROLLBACK"}:
                writes += wrote
                is_open = wrote = False
            elif verb in {"INSERT", "UPDATE", "DELETE"} or re.search(r"\b(INSERT INTO|UPDATE) ", sql):
                wrote = wrote or is_open
                writes += not is_open
        return writes

    @property
    def reads(self) -> list[str]:
        """Queries that only read, outside of checkpoints."""
        is_open = False
        found = []
        for sql in self.queries:
            verb = sql.split(None, 1)[0].upper()
            is_open = verb == "BEGIN" or (is_open and verb not in {"COMMIT", "ROLLBACK"})
            if verb == "SELECT" and not is_open and "INSERT INTO" not in sql:
                found.append(sql)
        return found

    @property
    def scripts(self) -> int:
        """Round trips of coordination: one script is one. That a server is taught a script once for all is not counted."""
        return sum(command.startswith("EVALSHA") for command in self.commands)


@pytest.fixture
def spending(settings: Any) -> Callable[[], Any]:
    """Count queries and Redis commands of this test's prefix inside a block."""
    url = str(settings.CACHES["default"]["LOCATION"])
    prefix = str(settings.REACTOR_COORD["KEY_PREFIX"])

    @contextmanager
    def count() -> Iterator[Spent]:
        spent = Spent()
        redis: Any = client(url)
        begun, ended = threading.Event(), f"{prefix}:end of count"

        def listen() -> None:
            with redis.monitor() as monitor:
                begun.set()
                for entry in monitor.listen():
                    command = str(entry["command"])
                    if ended in command:
                        return
                    if entry["client_type"] != "lua" and prefix in command:
                        spent.commands.append(command.upper())

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        assert begun.wait(5)
        with counted_queries() as captured:
            yield spent
        redis.exists(ended)
        thread.join(5)
        assert not thread.is_alive()
        spent.queries = [str(query["sql"]) for query in captured.captured_queries]

    return count


def _warm(reactor: type[Reactor], **inputs: Any) -> None:
    """Scripts loaded, connections made: what only a process's first execution pays."""
    reactor.run(**inputs)


def test_life_1_enqueued_with_nobody_in_the_way(spending: Any, reactor_dispatches: Any) -> None:
    _warm(Payment, key="warm")
    with spending() as start:
        handle = Payment.enqueue(key="k")
    assert start.transactions == 1
    assert len(start.queries) <= 3
    assert start.commands == []
    assert reactor_dispatches.take() and not reactor_dispatches
    with spending() as life:
        deliver(str(handle.id), "worker")
    assert handle.status == "completed"
    assert life.transactions == 1 + 3  # the claim, and one for each step; the end is in the last step's
    assert life.scripts == len(life.commands) == 2  # take and give
    assert len(life.reads) == CLAIM_READS
    assert reactor_dispatches == []
    if ON_POSTGRESQL:
        assert len(life.queries) == 1 + 3


def test_life_1_in_process(spending: Any) -> None:
    _warm(Payment, key="warm")
    with spending() as life:
        outcome = Payment.run(key="k")
    assert outcome.succeeded
    assert life.transactions == 1 + 3  # the row is inserted leased, and one for each step
    assert life.scripts == len(life.commands) == 2
    assert life.reads == []
    if ON_POSTGRESQL:
        assert len(life.queries) == 1 + 3


def test_steps_that_declare_nothing_never_ask_redis(spending: Any, reactor_dispatches: Any) -> None:
    with spending() as life:
        assert Uncoordinated.run().succeeded
    assert life.commands == []
    assert life.transactions == 1 + 3


def test_more_steps_cost_one_transaction_each(spending: Any) -> None:
    def chain(length: int) -> type[Reactor]:
        last = None
        namespace: dict[str, Any] = {"__module__": __name__}
        for number in range(length):
            last = namespace[f"s{number}"] = step(Plain, after=last) if last is not None else step(Plain)
        return type(f"Chain{length}", (Reactor,), namespace)

    costs = {}
    for length in (5, 10, 20):
        reactor = chain(length)
        with spending() as life:
            assert reactor.run().succeeded
        costs[length] = (life.transactions, len(life.queries))
    assert [transactions for transactions, _ in costs.values()] == [6, 11, 21]
    per_step = (costs[20][1] - costs[10][1]) / 10
    assert per_step == (costs[10][1] - costs[5][1]) / 5
    assert per_step <= (1 if ON_POSTGRESQL else 6)


def test_life_2_somebody_in_the_way_two_levels_down(spending: Any, reactor_dispatches: Any) -> None:
    _warm(Order, order="warm", key="warm")
    handle = Order.enqueue(order="7", key="k")
    with testing.hold("k"):
        with spending() as parking:
            deliver(str(handle.id), "worker")
        assert handle.status == "parked"
        # the claim, the child's row, audit, and the park
        assert parking.transactions == 4
        assert parking.scripts == 3  # take order:7, refused k, park order:7
        reactor_dispatches.clear()
    assert reactor_dispatches.ids == [str(handle.id)]  # the release sends the message
    reactor_dispatches.clear()
    with spending() as resuming:
        deliver(str(handle.id), "worker")
    assert handle.status == "completed"
    assert resuming.scripts == 4  # adopt order:7, adopt k, give k, give order:7
    assert len(resuming.reads) == CLAIM_READS + 2  # what the plan needs: the tree's rows and its step runs
    assert reactor_dispatches == []


def test_life_4_a_rollback_costs_one_transaction_for_each_undo(spending: Any, reactor_dispatches: Any) -> None:
    _warm(FailingPayment, key="warm")
    with spending() as life:
        outcome = FailingPayment.run(key="k")
    assert outcome.failed
    # the row, audit, charge, notify's failure (which turns it back), charge's undo, the end
    assert life.transactions == 6
    assert life.scripts == 4  # take and give, twice
    assert life.reads == []


def test_a_message_too_many_costs_one_transaction_at_most(spending: Any, reactor_dispatches: Any) -> None:
    handle = Uncoordinated.enqueue()
    deliver(str(handle.id), "worker")
    with spending() as nothing:
        deliver(str(handle.id), "worker")
    assert nothing.commands == []
    assert len(nothing.queries) <= 6


@with_ordered_lock("line:{key}")
@with_period("report:{key}", every="day")
@with_rate_limit("api:{key}", limit=100, period="second")
@with_lock("{key}", ttl=30)
@with_semaphore("pool:{key}", limit=2, ttl=30)
class Everything(Step):
    """All five."""

    key = Input(str)

    def run(self) -> str:
        return self.context.step


class AllFive(Reactor):
    """One step under all five."""

    key = Input(str)
    work = step(Everything)


@with_ordered_lock("line:{key}")
@with_period("report:{key}", every="day")
@with_rate_limit("api:{key}", limit=100, period="second")
@with_lock("{key}", ttl=30)
@with_semaphore("pool:{key}", limit=2, ttl=30)
class AllFiveAround(Reactor):
    """All five around a reactor."""

    key = Input(str)
    work = step(Plain)


@pytest.mark.parametrize("reactor", [AllFive, AllFiveAround])
def test_all_five_are_taken_in_one_round_trip_and_given_back_in_one(
    spending: Any, reactor_dispatches: Any, reactor: type[Reactor]
) -> None:
    for _ in range(2):  # the second is skipped by its period: another way out
        _warm(reactor, key="warm")
    with spending() as life:
        assert reactor.run(key="in process").succeeded
    assert len(life.commands) == life.scripts == 2
    handle = reactor.enqueue(key="worker")
    with spending() as life:
        deliver(str(handle.id), "worker")
    assert handle.status == "completed"
    assert len(life.commands) == life.scripts == 2
    with spending() as again:
        assert not reactor.run(key="worker").failed  # skipped by its period: the turn passes on
    assert len(again.commands) == 2


def test_refused_by_the_fourth_of_five_costs_one_round_trip_more_to_give_back(
    spending: Any, reactor_dispatches: Any
) -> None:
    _warm(AllFive, key="warm")
    handle = AllFive.enqueue(key="k")
    with testing.hold("k"):
        with spending() as parking:
            deliver(str(handle.id), "worker")
        assert handle.status == "parked"
        assert parking.scripts == 2  # ask, and keep the turn for when it comes again
        reactor_dispatches.clear()
    assert reactor_dispatches.ids == [str(handle.id)]
    with spending() as resuming:
        deliver(str(handle.id), "worker")
    assert handle.status == "completed"
    assert resuming.scripts == 2
