"""Redis away: no coordinated body starts, and nothing is taken for granted (B183, lock_11)."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Context,
    CoordinationUnavailable,
    Input,
    Retry,
    compose,
    operations,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from reactor_coord.declare.coordination import LockDeclaration
from reactor_coord.engine.records import Wait
from reactor_coord.runtime import deliver
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import failure, row, told
from tests.live.reactors import Guarded, LockedWork, Named, Single, Work

pytestmark = pytest.mark.django_db(transaction=True)

PRIMITIVES = {
    "lock": with_lock("k", ttl=5),
    "rate_limit": with_rate_limit("k", limit=5, period=60),
    "period": with_period("k", every="day"),
}


def _reactor(primitive: str) -> Any:
    class Coordinated(Named):
        a = step(Work)
        charge = step(Work, after=a, coordination=[PRIMITIVES[primitive]])

    return Coordinated


@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize("ignores", [True, False])
@pytest.mark.parametrize("outage", ["refused", "silent"])
def test_b183_without_redis_no_coordinated_body_starts(
    primitive: str, ignores: bool, outage: str, settings: Any, redis_proxy: Proxy, recorder: Recorder
) -> None:
    settings.DJANGO_REDIS_IGNORE_EXCEPTIONS = ignores
    default = settings.CACHES["default"]
    options = {**default["OPTIONS"], "SOCKET_TIMEOUT": 0.1, "SOCKET_CONNECT_TIMEOUT": 0.1, "IGNORE_EXCEPTIONS": ignores}
    settings.CACHES = {**settings.CACHES, "default": {**default, "OPTIONS": options}}
    if outage == "refused":
        redis_proxy.refuse()
    else:
        redis_proxy.pause()
    outcome = _reactor(primitive).run()
    redis_proxy.resume()
    assert failure(outcome).step == "charge"
    assert failure(outcome).error_type == "CoordinationUnavailable"
    assert failure(outcome).error.__cause__ is not None
    assert recorder.sequence() == ["run a", "undo a"]


ALL = {
    **PRIMITIVES,
    "semaphore": with_semaphore("k", limit=1, ttl=5),
    "ordered_lock": with_ordered_lock("k", poison_pill_timeout=600),
}


def _everywhere(primitive: str, where: str) -> Any:
    if where == "step":

        class AtStep(Named):
            a = step(Work)
            charge = step(Work, after=a, coordination=[ALL[primitive]])

        return AtStep

    @ALL[primitive]
    class Around(Named):
        charge = step(Work)

    if where == "reactor":
        return Around

    class Composes(Named):
        a = step(Work)
        inner = compose(Around, after=a)

    return Composes


@pytest.mark.parametrize("where", ["step", "reactor", "compose"])
@pytest.mark.parametrize("primitive", ALL)
def test_u109_in_a_worker_it_parks_and_goes_on_when_redis_is_back(
    primitive: str, where: str, redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = _everywhere(primitive, where)
    handle = reactor.enqueue()
    redis_proxy.refuse()
    for looks in (1, 2):
        deliver(handle.id, "a worker")
        execution = handle.execution
        assert (execution.status, execution.park_kind) == ("parked", "retry")
        assert execution.waits_on.outage_looks == looks and "Redis cannot be reached" in execution.waits_on.holder
    assert "run charge" not in recorder.sequence()
    assert "Redis cannot be reached" in operations.explain(handle.execution)
    redis_proxy.refuse(False)
    testing.drain(timeout=20)
    assert handle.status == "completed", handle.execution.failure
    assert recorder.sequence().count("run charge") == 1
    assert not told(handle, "step_failed", "rolling_back", "retrying")
    assert handle.execution.waiting_on is None


@pytest.mark.parametrize("primitive", ALL)
def test_u109_it_fails_when_redis_stays_away(
    primitive: str, redis_proxy: Proxy, reactor_dispatches: Any, reactor_settings: Any, recorder: Recorder
) -> None:
    reactor_settings(REDIS_PATIENCE=0.5)
    handle = _everywhere(primitive, "step").enqueue()
    redis_proxy.refuse()
    testing.drain(timeout=20)
    assert handle.status == "failed"
    assert handle.execution.why_failed.error_type == "CoordinationUnavailable"
    assert recorder.sequence() == ["run a", "undo a"]
    assert 1 <= len(told(handle, "parked")) <= 3


def test_u109_who_stood_in_line_stands_there_still(
    redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    handle = Single.enqueue(key="k")
    with testing.hold("k"):
        deliver(handle.id, "a worker")
        assert handle.execution.park_kind == "contention"
        redis_proxy.refuse()
        deliver(handle.id, "a worker")
        waits_on = handle.execution.waits_on or Wait()
        assert (handle.execution.park_kind, waits_on.key, waits_on.is_in_line) == ("retry", "k", True)
        redis_proxy.refuse(False)
        deliver(handle.id, "a worker")
        waits_on = handle.execution.waits_on or Wait()
        assert (handle.execution.park_kind, waits_on.outage_since) == ("contention", None)
        assert len(inspect.line("k")) == 1
        redis_proxy.refuse()
        deliver(handle.id, "a worker")
        redis_proxy.refuse(False)
        handle.cancel("no longer wanted")
        testing.drain(timeout=5)
        assert handle.status == "cancelled" and not inspect.line("k")


def test_u109_a_step_whose_attempt_began_waits_for_redis_before_the_next(
    redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Retried(Named):
        @step(retry=Retry(max_attempts=2, base_delay=0, jitter=0))
        @with_lock("k", ttl=5)
        def charge(context: Context) -> str:
            current().mark(f"attempt {context.attempt}")
            if context.attempt == 1:
                redis_proxy.refuse()
                raise ConnectionError("the bank is away as well")
            return "charged"

    handle = Retried.enqueue()
    deliver(handle.id, "a worker")
    deliver(handle.id, "a worker")
    assert handle.status == "parked"
    redis_proxy.refuse(False)
    testing.drain(timeout=20)
    assert handle.status == "completed", handle.execution.failure
    assert recorder.sequence() == ["attempt 1", "attempt 2"]


def test_b183_nor_by_a_call_of_its_own(redis_proxy: Proxy, recorder: Recorder) -> None:
    redis_proxy.refuse()
    with pytest.raises(CoordinationUnavailable) as caught:
        LockedWork.call(key="k")
    assert caught.value.step == "LockedWork"
    assert recorder.sequence() == []


def test_b183_nor_under_a_reactors_own_lock(redis_proxy: Proxy, recorder: Recorder) -> None:
    redis_proxy.refuse()
    outcome = Guarded.run(outer_key="outer", key="k")
    assert failure(outcome).step == ""
    assert failure(outcome).error_type == "CoordinationUnavailable"
    assert recorder.sequence() == []


def test_an_undo_without_redis_is_listed_and_the_rest_goes_on(
    redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Cutting(Named):
        key = Input(str)
        a = step(Work)
        charge = step(LockedWork, after=a)

        @step(after=charge)
        def cut() -> None:
            redis_proxy.refuse()
            raise ConnectionError("all gone")

    outcome = Cutting.run(key="k")
    assert recorder.sequence() == ["run a", "run charge", "undo a"]
    (left,) = failure(outcome).rollback_failures
    assert (left.step, left.reason) == ("charge", "coordination_unavailable")
    assert left.key == "k"
    redis_proxy.refuse(False)
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[-1] == "undo charge"
    assert row(outcome).reason == ""


def test_an_outage_during_the_body_costs_nothing_if_it_is_short(redis_proxy: Proxy, recorder: Recorder) -> None:
    class Blinking(Named):
        key = Input(str)

        @step(key=key)
        @with_lock("{key}", ttl=5)
        def charge(key: str) -> str:
            redis_proxy.cut()
            return "done"

    outcome = Blinking.run(key="k")
    assert outcome.succeeded
    assert told(outcome, "lock_lost") == []
    testing.assert_free("k")


def test_a_reply_that_is_lost_leaves_no_orphan(redis_proxy: Proxy, recorder: Recorder) -> None:
    """B007: the server granted it, the client cannot know: it is not blocked by its own orphan."""
    redis_proxy.swallow_replies(1, match=b"evalsha")
    first = Long.run(key="k")
    assert redis_proxy.swallowed == 1
    assert first.succeeded or failure(first).error_type == "CoordinationUnavailable"
    assert Long.run(key="k").succeeded
    testing.assert_free("k")


@with_lock("{key}", ttl=60, wait=5)
class _Long(Work):
    key = Input(str)


class Long(Named):
    """A lock that would stand for a minute if nobody gave it back."""

    key = Input(str)
    charge = step(_Long)


def test_changing_the_settings_again_and_again_uses_up_no_pool(reactor_settings: Any) -> None:
    from django_redis import get_redis_connection

    pool = get_redis_connection("default").connection_pool
    in_use = len(pool._in_use_connections)
    for number in range(120):
        reactor_settings(HANDOFF_GRACE=1.0 + number)
        LockedWork.call(key="k")
    assert len(pool._in_use_connections) <= in_use + 2


def test_what_is_declared_is_a_lock() -> None:
    assert isinstance(_Long.coordination["lock"], LockDeclaration)
