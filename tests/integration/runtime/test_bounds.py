"""What must not go on for ever: deaths outside every step, a Redis that blinks in a rollback, a retry asked for twice."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import transaction

from reactor_coord import step, testing, with_lock
from reactor_coord.errors import NotRunnable
from reactor_coord.models import Execution
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Chain, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


def test_workers_that_die_outside_every_step_fail_the_reactor_at_last(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = Chain.enqueue()
    Execution.objects.filter(pk=handle.id).update(workers_lost=50, current_step="")
    testing.drain()
    outcome = handle.wait(1)
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("", "WorkerLost")
    assert recorder.sequence() == []


@pytest.mark.parametrize("note", ["nonsense", ["a", "list"], {"timed": True}, {"timed": True, "until": 7}, 3])
def test_a_note_that_is_not_ours_keeps_nobody_from_running(
    note: object, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = Chain.enqueue()
    Execution.objects.filter(pk=handle.id).update(status="parked", park_kind="retry", waiting_on=note)
    testing.drain()
    assert handle.wait(1).succeeded


def test_asked_several_times_there_is_one_retry(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    failed = Chain.run(fail_at="c1").execution
    first = failed.retry()
    assert failed.retry().id == first.id
    assert Execution.objects.count() == 2
    testing.drain()
    with pytest.raises(Exception, match=str(first.id)):
        failed.retry()


@with_lock("{name}", ttl=5, rollback_wait=5)
class PatientStep(Work):
    """Its undo waits for Redis as for a holder."""


class Blinking(Named):
    """A locked step, then one that fails."""

    charge = step(PatientStep)
    behind = step(Work, after=charge)


def test_a_redis_that_blinks_in_a_rollback_is_waited_for(
    recorder: Recorder, redis_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Work.compensate

    def cut_then_compensate(self: Work, error: BaseException) -> None:
        redis_proxy.refuse()
        threading.Timer(0.6, redis_proxy.refuse, (False,)).start()
        time.sleep(0.05)
        original(self, error)

    monkeypatch.setattr(Work, "compensate", cut_then_compensate)
    outcome = Blinking.run(name="blink", fail_at="behind")
    assert outcome.failed
    assert outcome.failure is not None
    assert outcome.failure.rollback_failures == ()
    assert recorder.count("undo charge") == 1


def test_a_coordinated_call_inside_an_open_transaction_is_refused_like_a_run(recorder: Recorder) -> None:
    with transaction.atomic(), pytest.raises(NotRunnable, match="allow_in_atomic"):
        LockedWork.call(key="k")
    assert recorder.sequence() == []

    class Knowing(LockedWork):
        allow_in_atomic = True

    with transaction.atomic():
        assert Knowing.call(key="k")["pid"] > 0
    testing.assert_free("k")
