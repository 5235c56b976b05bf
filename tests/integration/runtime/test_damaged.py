"""A step that meets a damaged key in Redis fails and names it: nothing runs unprotected, no row stays running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, step, testing
from reactor_coord import with_lock as lock
from reactor_coord.coordination import locks
from reactor_coord.declare.decorators import with_ordered_lock, with_period, with_rate_limit, with_semaphore
from reactor_coord.errors import CoordinationDamaged
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import failure

pytestmark = pytest.mark.django_db(transaction=True)

DECLARED: dict[str, tuple[Any, str]] = {
    "lock": (lock("k", ttl=5), "hold"),
    "semaphore": (with_semaphore("k", limit=1, ttl=5), "hold"),
    "rate_limit": (with_rate_limit("k", limit=5, period=60), "state"),
    "period": (with_period("k"), "marks"),
    "ordered_lock": (with_ordered_lock("k"), "line"),
}


class Marking(Step):
    def run(self) -> str:
        current().mark("body")
        return "ran"

    def undo(self, result: str) -> None:
        current().mark("undo")


def redis_key(primitive: str) -> str:
    return f"{locks().names.tag(primitive, 'k')}:{DECLARED[primitive][1]}"


def put_a_list(primitive: str) -> None:
    """As another program that uses this name would."""
    client = locks().connection.client
    client.delete(redis_key(primitive))
    client.rpush(redis_key(primitive), "somebody else's")


def reactor_of(primitive: str, where: str) -> type[Reactor]:
    declaration = DECLARED[primitive][0]

    class Wanting(Marking):
        pass

    if where == "step":
        declaration(Wanting)

    class Around(Reactor):
        first = step(Marking)
        only = step(Wanting, after=first)

    if where == "reactor":
        declaration(Around)
    return Around


def repair(primitive: str) -> None:
    """As the message says; a semaphore's leases would end by themselves."""
    client = locks().connection.client
    client.delete(*client.keys(f"{locks().names.tag(primitive, 'k')}:*"))


@pytest.mark.parametrize("where", ["step", "reactor"])
@pytest.mark.parametrize("primitive", list(DECLARED))
def test_u05_a_damaged_key_fails_what_needs_it_and_is_named(
    primitive: str, where: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = reactor_of(primitive, where)
    put_a_list(primitive)
    found = failure(reactor.run())
    assert isinstance(found.error, CoordinationDamaged)
    handle = reactor.enqueue()
    testing.drain()
    assert handle.status == "failed"
    told = handle.execution.failure or {}
    assert told["error_type"] == "CoordinationDamaged"
    for message in (found.message, told["message"]):
        assert redis_key(primitive) in message
        assert "it is a list, where a hash belongs" in message
        assert "delete the key (DEL)" in message
        assert "could not be asked" not in message
    assert recorder.count("body") == (2 if where == "step" else 0)
    assert recorder.count("undo") == (2 if where == "step" else 0)
    repair(primitive)
    assert reactor.run().succeeded


class Damaging(Step):
    """Its own key is damaged while it runs."""

    primitive = Input(str)

    def run(self) -> str:
        put_a_list(self.primitive)
        return "ran"


@pytest.mark.parametrize("primitive", list(DECLARED))
def test_u05_damaged_while_the_body_runs_it_does_not_leave_the_row_running(
    primitive: str, reactor_dispatches: Any
) -> None:
    """What was done stands or is rolled back; what cannot be given back, marked or passed on is logged."""

    class Own(Damaging):
        pass

    DECLARED[primitive][0](Own)

    class Around(Reactor):
        only = step(Own, primitive=primitive)

    assert Around.run().status in {"completed", "failed"}
    repair(primitive)
    handle = Around.enqueue()
    testing.drain()
    assert handle.status in {"completed", "failed"}


def test_u05_a_rollback_lists_it_and_goes_on(recorder: Recorder) -> None:
    class Locked(Marking):
        pass

    lock("k", ttl=5, rollback_wait=0.1)(Locked)

    class Failing(Step):
        def run(self) -> None:
            put_a_list("lock")
            raise ArithmeticError("behind")

    class Around(Reactor):
        first = step(Marking)
        second = step(Locked, after=first)
        third = step(Failing, after=second)

    found = failure(Around.run())
    (left,) = found.rollback_failures
    assert (left.step, left.key) == ("second", "k")
    assert redis_key("lock") in left.message
    assert recorder.sequence() == ["body", "body", "undo"]


@pytest.mark.parametrize("primitive", ["lock", "semaphore", "ordered_lock"])
def test_u05_the_pages_show_what_is_wrong(
    primitive: str, admin_client: Any, reactor_dispatches: Any, recorder: Recorder
) -> None:
    from django.urls import reverse

    index = locks().names.index(primitive).decode()
    put_a_list(primitive)
    locks().connection.client.zadd(index, {"k": 1e15})
    page = admin_client.get(reverse("admin:reactor_coord_coordination"))
    assert page.status_code == 200
    assert "it is a list, where a hash belongs" in page.content.decode()
    name = {"lock": "holds", "semaphore": "holds", "ordered_lock": "lines"}[primitive]
    answer = admin_client.get(reverse(f"reactor_coord_api:coordination-{name}"))
    assert answer.status_code in {200, 503}
    assert "it is a list, where a hash belongs" in answer.content.decode()


def test_u05_a_call_says_so_too() -> None:
    class Called(Marking):
        pass

    lock("k", ttl=5)(Called)
    put_a_list("lock")
    call: Callable[[], Any] = Called.call
    with pytest.raises(CoordinationDamaged) as caught:
        call()
    assert (caught.value.step, caught.value.redis_key) == ("Called", redis_key("lock"))
