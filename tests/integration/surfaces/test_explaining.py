"""`explain`: one sentence that says why an execution is not running, whatever it waits on; the same on every surface."""

from __future__ import annotations

import re
import threading
import time
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.urls import reverse

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    interrupt,
    map_each,
    operations,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.models import Execution
from reactor_coord.operations import views
from reactor_coord.testing import drain, hold
from tests.live.reactors import BodyFailed, Outer, Payment
from tests.support.counting import counted_queries

from .conftest import ClientOf, Scene

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]


def test_a_lock_says_who_since_when_with_which_fence_where_in_line_and_when_it_looks_again(scene: Scene) -> None:
    said = operations.explain(scene.row)
    assert re.fullmatch(
        rf"Waiting for lock acct:1 at step charge; held by testing.hold \w+ for [\d.]+ m?s \(fence {scene.held.fence}\); "
        r"1st in line of 1; refused 1 time; looks again in [\d.]+ m?s unless woken\.",
        said,
    ), said
    assert operations.explain(str(scene.row.pk)).split(" for ")[0] == said.split(" for ")[0]


def test_the_same_words_in_admin_api_and_command(scene: Scene, client_of: ClientOf) -> None:
    client = client_of("viewer")
    body = client.get(reverse("reactor_coord_api:execution-detail", args=[scene.row.pk])).json()
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).content.decode()
    out = StringIO()
    call_command("executions", str(scene.row.pk), stdout=out)
    for text in (body["explain"], page, out.getvalue().replace("\n", " ")):
        assert f"(fence {scene.held.fence})" in text and "Waiting for lock acct:1 at step charge" in text


def test_a_key_that_is_free_by_now(scene: Scene) -> None:
    scene.held.release()
    assert "it is its turn" in operations.explain(scene.row)


def test_a_park_below_is_told_of_the_root_and_of_the_one_that_waits() -> None:
    with hold("acct:9"):
        handle = Outer.enqueue(outer_key="o:1", middle_key="m:1", key="acct:9")
        drain()
        root = operations.explain(handle.id)
        below = Execution.objects.get(root_id=handle.id, label="Payment")
        own = operations.explain(below)
    assert "lock acct:9 at step Payment.charge" in root and "lock acct:9" in own


@with_semaphore("pool", limit=1, ttl=5)
class Pooled(Reactor):
    """One at a time, by a semaphore."""

    @step
    @with_lock("pooled", ttl=5)
    def work() -> None:
        pass


def test_a_semaphore_says_how_many_slots_are_taken_and_by_whom() -> None:
    with hold("pooled"):
        first, second = Pooled.enqueue(), Pooled.enqueue()
        drain()
        assert "lock pooled at step work" in operations.explain(first.id)
        said = operations.explain(second.id)
    assert "Waiting for semaphore pool; kept by Pooled" in said
    assert "1 of 1 slots are taken; 1st in line of 1" in said
    assert "(fence " in said


class Sent(Reactor):
    """One letter a minute."""

    @step()
    @with_rate_limit("letters", limit=1, period=60)
    def send() -> str:
        return "sent"


def test_a_rate_limit_says_its_slot_and_who_comes_before() -> None:
    handles = [Sent.enqueue() for _ in range(3)]
    drain()
    said = [operations.explain(handle.id) for handle in handles]
    assert said[0].startswith("Completed")
    assert "Waiting for rate limit letters at step send; the limit has counted 1 of 1 in 1 min" in said[1]
    assert "it has a slot of its own, the next; its time comes in" in said[1]
    assert "it has a slot of its own, after 1 other; its time comes in" in said[2]
    assert "held by" not in said[1]


class InOrder(Reactor):
    """One at a time, in order, each kept by a lock."""

    @step
    @with_ordered_lock("book")
    @with_lock("page", ttl=5)
    def write() -> None:
        pass


def test_an_ordered_lock_says_position_and_whose_turn_it_is() -> None:
    with hold("page"):
        first, second = InOrder.enqueue(), InOrder.enqueue()
        drain()
        assert "Waiting for lock page at step write" in operations.explain(first.id)
        said = operations.explain(second.id)
    assert "Waiting for its turn in book at step write; it has position 2, position 1 is next: paused, InOrder" in said
    assert "which is passed over in" in said and "looks again in" in said


@with_period("report", every="day")
class Daily(Reactor):
    """Once a day."""

    @step
    def report() -> None:
        pass


def test_a_period_says_who_ran_in_it() -> None:
    first = Daily.run()
    second = Daily.run()
    said = operations.explain(second.execution)
    assert "report has run in day:" in said and str(first.execution.id) in said


class Flaky(Reactor):
    """Fails once."""

    @step(retry=Retry(max_attempts=3, backoff="fixed", base_delay=30))
    def call() -> None:
        raise BodyFailed("the line was dead.")


def test_a_retry_says_which_attempt_failed_and_how() -> None:
    handle = Flaky.enqueue()
    drain()
    said = operations.explain(handle.id)
    assert "Waiting to try again at step call; its 1st attempt failed with BodyFailed: the line was dead; " in said
    assert "its time comes in" in said and "refused" not in said


class Approval(Reactor):
    """Asks, then ends."""

    ask = interrupt(correlation_id="order-7")


class TimedApproval(Reactor):
    """Asks for a day."""

    ask = interrupt(correlation_id="order-8", timeout=86400)


def test_a_pause_says_what_is_asked_and_until_when() -> None:
    open_ended, timed = Approval.enqueue(), TimedApproval.enqueue()
    drain()
    said = operations.explain(open_ended.id)
    assert "Waiting for an answer at step ask; asked " in said and "under 'order-7'; no time is set." in said
    assert "given up in " in operations.explain(timed.id)


@with_lock("unit", ttl=5)
class Guarded(Step):
    """A unit that waits."""

    def run(self) -> str:
        return "done"


class HandsOff(Reactor):
    """Waits for its unit."""

    unit = async_step(Guarded)


def test_a_wait_for_a_result_says_how_far_the_unit_is() -> None:
    with hold("unit"):
        handle = HandsOff.enqueue()
        drain()
        said = operations.explain(handle.id)
        unit = Execution.objects.get(parent_id=handle.id)
        assert "lock unit" in operations.explain(unit)
    assert "Waiting for results at step unit; 0 of 1 is over (1 parked); looks again in" in said


class Fans(Reactor):
    """One element each, two at a time."""

    items = Input(list)

    each = map_each(Guarded, over=items, batch_size=2)


def test_a_wait_for_a_fan_out_counts_its_elements() -> None:
    with hold("unit"):
        handle = Fans.enqueue(items=[1, 2, 3])
        drain()
        said = operations.explain(handle.id)
    assert "Waiting for results at step each; 0 of 3 are over (2 parked, 1 ready); looks again in" in said


def test_a_wait_that_blocks_in_a_process_is_seen() -> None:
    class Blocks(Reactor):
        """Blocks for a lock."""

        @step
        @with_lock("blocked", ttl=5, wait=5)
        def work() -> None:
            pass

    def run() -> None:
        try:
            Blocks.run()
        finally:
            connection.close()

    with hold("blocked"):
        running = threading.Thread(target=run)
        running.start()
        deadline = time.monotonic() + 5
        said = ""
        while "its process stands in line for lock blocked, held by testing.hold" not in said:
            assert time.monotonic() < deadline, said
            row = Execution.objects.filter(label="Blocks").first()
            said = operations.explain(row) if row is not None else ""
    running.join()


def test_ends_are_told(scene: Scene) -> None:
    assert operations.explain(Payment.run(key="other").execution).startswith("Completed in ")
    with hold("busy"):
        said = operations.explain(Payment.run(key="busy").execution)
    assert "Failed: step charge failed with LockContended" in said and "what was done has been rolled back" in said


def test_without_redis_it_says_what_was_recorded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from reactor_coord.errors import CoordinationUnavailable

    def away(*args: Any, **options: Any) -> Any:
        raise CoordinationUnavailable("away")

    monkeypatch.setattr("reactor_coord.coordination.connection.Connection.commands", away)
    said = operations.explain(scene.row)
    assert "Waiting for lock acct:1 at step charge; held by testing.hold" in said and "1st in line" in said


def test_it_costs_the_same_few_queries(scene: Scene) -> None:
    with counted_queries() as queries:
        operations.explain(scene.row)
    assert len(queries) <= 3
    assert views.detail(scene.row).explain.split("; held")[0] == operations.explain(scene.row).split("; held")[0]
