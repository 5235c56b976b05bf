"""A map that is killed while its elements are being written goes on behind the last of them, whatever became of its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from reactor_coord import Input, Reactor, Step, element, map_each, step
from reactor_coord.models import Execution, StepRun
from reactor_coord.operations import verbs
from reactor_coord.runtime import deliver, sources
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing import drain, faults
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.integration.runtime.support import killed
from tests.live.models import Posting
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 2 * sources.CHUNK + 100
EVERY = 50
"""Of so many rows one has a body; the others are skipped where they are written."""


class Post(Step):
    """Says which row it was given."""

    posting = Input(Posting)

    def run(self) -> int:
        recorders.current().mark(f"run {self.posting.amount}")
        return int(self.posting.amount)


def is_due(posting: Posting) -> bool:
    return bool(posting.amount % EVERY == 0)


class ByKey(Reactor):
    """Rows in the order of their keys."""

    each = map_each(Post, over=Posting.objects.all(), posting=element(), where=is_due)


class ByAmount(Reactor):
    """Rows in an order of the author's."""

    each = map_each(Post, over=Posting.objects.order_by("amount"), posting=element(), where=is_due)


class Sliced(Reactor):
    """The first rows of an order of the author's."""

    each = map_each(Post, over=Posting.objects.order_by("amount")[: ROWS - 1], posting=element(), where=is_due)


class FromAFunction(Reactor):
    """A list that a function makes of the rows there are."""

    each = map_each(Post, over=lambda: list(Posting.objects.order_by("amount")), posting=element(), where=is_due)


def kill_its_worker(handle: ExecutionHandle, point: str, skip: int) -> None:
    """A worker takes it up, and is killed at that point; its lease has run out."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        faults.install({point: {"action": "kill", "skip": skip}})
        deliver(handle.id, "a worker")
        os._exit(0)
    os.waitpid(pid, 0)
    lapsed = timezone.now() - timedelta(seconds=5)
    assert Execution.objects.exclude(lease_token="").update(lease_expires_at=lapsed) == 1, "it was not killed"


@pytest.fixture
def rows(db: Any) -> list[int]:
    Posting.objects.bulk_create(Posting(account="a", amount=number, execution="x") for number in range(1, ROWS + 1))
    return list(Posting.objects.order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("reactor", [ByKey, ByAmount, Sliced, FromAFunction])
def test_u17_rows_deleted_between_two_chunks_move_no_other_row(
    reactor: type[Reactor], rows: list[int], reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = reactor.enqueue()
    kill_its_worker(handle, "checkpoint.after", 0)
    written = Execution.objects.filter(parent=handle.id).count()
    assert written in {sources.CHUNK, sources.CHUNK - 1, ROWS}, "killed when one chunk, or the whole list, was written"
    Posting.objects.filter(pk__in=rows[1:40]).delete()
    Posting.objects.filter(amount=sources.CHUNK + 1).delete()
    sweep_once()
    drain()
    assert handle.status == "completed", handle.execution.failure
    due = [f"run {amount}" for amount in range(EVERY, ROWS + 1, EVERY)]
    last = ROWS - 1 if reactor is Sliced else ROWS
    assert recorder.sequence() == [each for each in due if int(each.split()[1]) <= last]
    indexes = Execution.objects.filter(parent=handle.id).order_by("element_index")
    assert [each.element_index for each in indexes] == list(range(len(indexes)))


def test_u17_a_run_killed_in_process_is_gone_on_with_behind_the_row_of_its_last_element(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    for number in range(1, 7):
        Posting.objects.create(account="a", amount=number * EVERY, execution="x")
    row = killed(lambda: ByKey.run(), "body.before", 3)
    Posting.objects.filter(amount__lte=2 * EVERY).delete()
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    assert row.status == "completed", row.failure
    assert recorder.sequence() == [f"run {number * EVERY}" for number in range(1, 7)]


def test_a_row_that_a_join_gives_twice_is_an_element_twice_at_the_end_of_a_chunk_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 3)
    for number in range(1, 5):
        Posting.objects.create(account="a", amount=number, execution="x")
    twice = Posting.objects.filter(amount__in=[1, 2]).union(Posting.objects.filter(amount__in=[3, 4]))
    assert [item.amount for item, _ in sources.read(twice.order_by("amount"), sources.Cursor(1))] == [2, 3, 4]
    assert [item.amount for item, _ in sources.read(Posting.objects.all(), sources.Cursor())] == [1, 2, 3, 4]


def test_what_a_map_has_written_is_read_back_as_it_was() -> None:
    for number in range(3):
        Posting.objects.create(account="a", amount=number, execution="x")
    for source in (Posting.objects.all(), Posting.objects.order_by("-amount"), [1, 2, 3]):
        whole = [item for item, _ in sources.read(source, sources.Cursor())]
        for item, cursor in sources.read(source, sources.Cursor()):
            kept = sources.Cursor.from_json(cursor.to_json())
            rest = [each for each, _ in sources.read(source, kept)]
            assert rest == whole[whole.index(item) + 1 :]


# ---- rows of elements that were deleted


class Mapped(Named):
    """A map over four names, and a step behind it."""

    each = map_each(Work, over=["w", "x", "y", "z"], name=element())
    behind = step(Work, after=each)


def gone(handle: Any) -> list[str]:
    handle.execution.refresh_from_db()
    failure = Execution.objects.get(pk=handle.execution.pk).why_failed
    assert failure is not None
    assert {each.reason for each in failure.rollback_failures} == {"row_gone"}
    return [each.message.partition(" of ")[0] for each in failure.rollback_failures]


def in_a_worker() -> ExecutionHandle:
    handle = Mapped.enqueue()
    drain()
    return handle


@pytest.mark.parametrize("start", [Mapped.run, in_a_worker], ids=["in process", "in a worker"])
def test_u22_an_element_whose_row_was_deleted_is_listed_once_per_index_by_the_rollback(
    start: Callable[[], Any], reactor_dispatches: Any, recorder: Recorder
) -> None:
    done = start()
    Execution.objects.filter(parent=done.execution, element_index__in=[1, 3]).delete()
    verbs.undo(done.execution)
    drain()
    assert gone(done) == ["element 1", "element 3"]
    assert {body.notes["name"] for body in recorder.intervals("undo each")} == {"y", "w"}
    assert recorder.count("undo each") == 2
    verbs.undo(done.execution)
    drain()
    assert gone(done) == ["element 1", "element 3"]
    assert StepRun.objects.get(execution=done.execution, step="behind").status == "undone"


def test_an_element_whose_row_is_deleted_while_the_map_is_waited_for_fails_it(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = Mapped.enqueue()
    deliver(handle.id, "a worker")
    Execution.objects.filter(parent=handle.id, element_index=2).delete()
    drain()
    failure = handle.execution.why_failed
    assert failure is not None
    assert failure.message == "1 of its elements are gone: their rows were deleted"
    assert gone(handle) == ["element 2"]
