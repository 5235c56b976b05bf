"""An input that names a row which is deleted by the time it is read: the execution fails, or is undone; it does not hang."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from reactor_coord import Input, Reactor, compose, step, testing, with_lock
from reactor_coord.operations import verbs
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.live.models import Posting
from tests.live.reactors import LockedWork, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Plain(Reactor):
    """Reads the row."""

    posting = Input(Posting)

    @step(posting=posting)
    def read(posting: Posting) -> Any:
        """Never runs here."""
        return posting.pk


@with_lock("{key}", ttl=2)
class Locked(Reactor):
    """Has the row beside a key that needs no row."""

    key = Input(str)
    posting = Input(Posting)
    charge = step(Work)
    read = step(Work, name=posting.map(lambda each: each.account), after=charge)


class Inner(Reactor):
    """A contended step, given a row that no step of it reads."""

    key = Input(str)
    posting = Input(Posting)
    charge = step(LockedWork)


class Around(Reactor):
    """Hands the row on to a child."""

    key = Input(str)
    posting = Input(Posting)
    before = step(Work)
    child = compose(Inner, after=before, coordination=[with_lock("around:{key}", ttl=2)])


@pytest.fixture
def posting(reactor_dispatches: Any) -> Posting:
    """A row, to be deleted."""
    return Posting.objects.create(account="a", amount=1, execution=uuid4())


def test_gone_before_the_first_step_it_fails_and_says_why(posting: Posting) -> None:
    handle = Plain.enqueue(posting=posting)
    Posting.objects.all().delete()
    drain()
    failure = handle.execution.failure or {}
    assert (handle.status, failure["step"], failure["error_type"]) == ("failed", "read", "CodecError")


def test_gone_under_a_reactors_lock_too(posting: Posting) -> None:
    handle = Locked.enqueue(key="k", posting=posting)
    Posting.objects.all().delete()
    drain()
    assert handle.status == "failed"
    assert (handle.execution.failure or {})["step"] == "read"
    testing.assert_free("k")


def test_gone_afterwards_it_can_still_be_undone(posting: Posting, recorder: Recorder) -> None:
    handle = Locked.enqueue(key="k", posting=posting)
    drain()
    Posting.objects.all().delete()
    verbs.undo(handle.execution)
    drain()
    assert handle.status == "reverted"
    assert recorder.sequence() == ["run charge", "run read", "undo read", "undo charge"]


def test_gone_while_a_child_waits_for_its_key(posting: Posting, recorder: Recorder) -> None:
    handle = Around.enqueue(key="k", posting=posting)
    with testing.hold("k"):
        drain()
        assert handle.status == "parked"
        Posting.objects.all().delete()
    drain()
    assert handle.status == "failed"
    assert recorder.sequence() == ["run before", "undo before"]
    testing.assert_free("k")
    testing.assert_free("around:k")
