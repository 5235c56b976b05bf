"""Leaving the rest to a worker: `background_after`, `background_before`, and a start that is put off."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from reactor_coord import (
    DefinitionError,
    ExecutionPending,
    Input,
    Reactor,
    ReactorFailed,
    compose,
    map_each,
    step,
    testing,
    with_lock,
)
from reactor_coord.models import Execution
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from tests.integration.testing.shapes import Asking
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5)
class Behind(Named):
    """All after b runs in a worker, under the reactor's lock."""

    key = Input(str)

    a = step(Work)
    b = step(Work, after=a)
    c = step(Work, after=b)

    background_after = b


class Before(Named):
    """From b on it runs in a worker."""

    a = step(Work)
    b = step(Work, after=a)
    c = step(Work, after=b)

    background_before = b


@pytest.mark.parametrize("word", [compose, partial(map_each, over=[1])])
@pytest.mark.parametrize(("reactor", "option"), [(Behind, "background_after = b"), (Before, "background_before = b")])
def test_u119_what_is_past_a_point_of_a_part_is_refused_at_import(
    word: Any, reactor: type[Reactor], option: str
) -> None:
    words = (
        f"step 'part' of Whole: {reactor.__name__} declares {option}, which would be ignored.* Declare .* on Whole, or"
    )
    with pytest.raises(DefinitionError, match=words):
        type("Whole", (Named,), {"part": word(reactor, arguments={"key": "k"} if reactor is Behind else {})})


def test_u119_a_subclass_without_the_point_may_be_a_part(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    class Part(Before):
        background_before = None  # type: ignore[assignment]

    class Whole(Named):
        part = compose(Part)
        background_before = part

    Whole.run()
    assert recorder.sequence() == []
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "run c"]


class BadReturn(Named):
    """Its value cannot be had."""

    a = step(Work)

    returns = a["nothing of that name"]


def test_what_is_past_the_point_runs_in_a_worker_and_keeps_its_lock(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = Behind.run(key="k")
    assert outcome.status == "ready"
    assert recorder.sequence() == ["run a", "run b"]
    testing.assert_locked("k", by=outcome.execution)
    assert reactor_dispatches.ids == [str(outcome.execution.id)]
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "run c"]
    assert Execution.objects.get(pk=outcome.execution.id).status == "completed"
    testing.assert_free("k")


def test_background_before_stops_short_of_the_step(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    Before.run()
    assert recorder.sequence() == ["run a"]
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "run c"]


def test_enqueued_it_is_in_a_worker_already(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Before.enqueue()
    assert len(reactor_dispatches) == 1
    testing.drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run a", "run b", "run c"]


def test_a_long_countdown_is_left_to_the_sweep_and_a_short_one_to_the_broker(reactor_dispatches: Dispatches) -> None:
    Before.options(countdown=1.5).enqueue()
    assert [dispatch.countdown for dispatch in reactor_dispatches] == [1.5]
    reactor_dispatches.clear()
    handle = Before.options(countdown=3600).enqueue()
    assert reactor_dispatches == []
    row = handle.execution
    assert row.resume_at is not None
    assert 3590 < (row.resume_at - row.created_at).total_seconds() < 3610


def test_b117_a_value_that_cannot_be_had_fails_the_reactor_and_undoes_its_steps(recorder: Recorder) -> None:
    outcome = BadReturn.run()
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("", "LookupError")
    assert recorder.sequence() == ["run a", "undo a"]


@pytest.mark.parametrize("how", ["handed over", "behind a key", "asked for by its idempotency key"])
def test_u110_what_goes_on_in_a_worker_is_pending_and_has_a_handle(
    how: str, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    if how == "asked for by its idempotency key":
        Before.options(idempotency_key="once").enqueue()
        outcome = Before.options(idempotency_key="once").run()
    elif how == "behind a key":
        with testing.hold("k"):
            handle = Behind.options(idempotency_key="once").enqueue(key="k")
            testing.drain()
            assert handle.status == "parked"
            outcome = Behind.options(idempotency_key="once").run(key="k")
    else:
        outcome = Before.run()
    assert (outcome.pending, outcome.succeeded, outcome.failed, outcome.paused) == (True, False, False, False)
    with pytest.raises(ExecutionPending) as caught:
        outcome.unwrap()
    said = str(caught.value)
    assert f"Execution {outcome.execution.id} is {outcome.status}" in said
    assert "goes on in a worker" in said and "outcome.handle.wait()" in said
    testing.drain(timeout=20)
    ended = outcome.handle.wait(1)
    assert (ended.pending, ended.succeeded) == (False, True)
    assert ended.handle.id == outcome.handle.id
    assert ended.unwrap()["step"] in {"b", "c"}


def test_u110_unwrapping_what_waits_for_an_answer_says_so(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    outcome = Asking.run()
    assert (outcome.pending, outcome.paused) == (False, True)
    with pytest.raises(ExecutionPending, match="is paused: it waits for an answer"):
        outcome.unwrap()


def test_unwrapping_what_was_cancelled_says_why(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Before.enqueue()
    handle.cancel("wrong order")
    with pytest.raises(ReactorFailed, match="is cancelled: wrong order"):
        handle.wait(1).unwrap()
