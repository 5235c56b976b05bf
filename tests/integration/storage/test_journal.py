"""An event, its trace row and its signal say one thing, whoever tells it: a run, the sweep, an operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from reactor_coord.engine import events
from reactor_coord.engine.events import Event
from reactor_coord.engine.states import Mode
from reactor_coord.operations import verbs
from reactor_coord.storage import journal, store
from tests.integration.storage.rows import child_of, expire, ready, running
from tests.live.reactors import Guarded
from tests.support.events import every_event, full, heard_signals

pytestmark = pytest.mark.django_db


@every_event
def test_row_and_signal_of_an_event_agree(event: type[Event]) -> None:
    root = ready(reactor=Guarded.definition.name, label="Guarded")
    told = full(event)
    note = journal.note(root, told)
    store.record([journal.row(note)])
    with heard_signals() as heard:
        journal.publish(note)

    [row] = store.trace(root.id)
    [signal] = heard
    assert (
        signal["event"] == told == events.read(row.kind, row.data, step=row.step, primitive=row.primitive, key=row.key)
    )
    columns = ("kind", "step", "primitive", "key", "data", "at")
    assert [signal[name] for name in columns] == [getattr(row, name) for name in columns]
    assert (signal["execution"], signal["root"]) == (str(root.id), str(root.id))
    assert (signal["sender"], signal["reactor"]) == (Guarded, "Guarded")
    assert signal["holder"] == signal["data"].get("held_by", "")


def test_what_happened_before_is_told_at_its_own_time() -> None:
    root = running()
    child = child_of(root)
    before = timezone.now() - timedelta(minutes=5)
    note = journal.note(child, events.ExecutionStarted(), at=before)
    assert journal.row(note).at == note.at == before
    assert (note.execution_id, note.root_id) == (child.id, root.id)


def test_a_reactor_that_this_process_has_not_defined_is_named_by_its_row() -> None:
    note = journal.note(ready(reactor="gone.reactors.Gone", label="Gone"), events.ExecutionStarted())
    assert (note.reactor, note.sender) == ("Gone", None)


def test_an_event_of_no_execution_is_a_signal_without_ids() -> None:
    told = events.HoldAcquired(step="Charge", primitive="lock", key="k")
    with heard_signals() as heard:
        journal.publish(journal.Note(told, timezone.now()))
    assert [(each["execution"], each["root"], each["reactor"]) for each in heard] == [("", "", "")]


@pytest.mark.parametrize("mode, kinds", [(Mode.WORKER, ["worker_lost"]), (Mode.INLINE, ["aborted"])])
def test_u44_what_the_sweep_finds_lost_is_a_signal_too(mode: Mode, kinds: list[str]) -> None:
    root = running(reactor=Guarded.definition.name, label="Guarded", mode=mode)
    expire(root)
    with heard_signals() as heard:
        [lost] = store.expired_leases()
        assert store.mark_lost(lost)
        assert not store.mark_lost(lost)

    assert [each["kind"] for each in heard] == kinds == [row.kind for row in store.trace(root.id)]
    assert {(each["reactor"], each["sender"], each["root"], each["event"].worker) for each in heard} == {
        ("Guarded", Guarded, str(root.id), "w1")
    }


@pytest.mark.parametrize("act", [verbs.cancel, verbs.undo])
def test_an_operators_signal_names_the_reactor_the_person_and_the_reason(act: Any) -> None:
    status = "completed" if act is verbs.undo else "parked"
    root = ready(reactor=Guarded.definition.name, label="Guarded", status=status)
    with heard_signals() as heard:
        act(root, reason="wrong amount", actor="anna")

    signal = heard[0]
    assert {(each["reactor"], each["sender"]) for each in heard} == {("Guarded", Guarded)}
    assert (signal["event"].verb, signal["event"].reason, signal["event"].actor) == (
        act.__name__,
        "wrong amount",
        "anna",
    )
