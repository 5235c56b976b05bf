"""What an error of contention says: reactor or class, step, key, holder, and what may be done about it."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Input,
    Reactor,
    Step,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.errors import ContentionError, CoordinationKeyError, LockLost
from tests.integration.runtime.support import eventually, failure
from tests.integration.runtime.test_held import take_away

pytestmark = pytest.mark.django_db(transaction=True)

DECLARED: dict[str, Any] = {
    "lock": with_lock("k", ttl=5),
    "semaphore": with_semaphore("k", limit=1, ttl=5),
    "ordered_lock": with_ordered_lock("k"),
    "rate_limit": with_rate_limit("k", limit=1, period=3600),
}


def _declaring(primitive: str) -> type[Step]:
    class Wanting(Step):
        def run(self) -> Any:
            return "ran"

    DECLARED[primitive](Wanting)
    return Wanting


def _in_the_way(primitive: str) -> Any:
    options = {"limit": 1, "period": 3600} if primitive == "rate_limit" else {}
    return testing.hold("k", primitive, **options)


@pytest.mark.parametrize("primitive", list(DECLARED))
def test_u116_a_refusal_in_process_carries_names_and_a_remedy(primitive: str) -> None:
    wanting = _declaring(primitive)

    class Refused(Reactor):
        only = step(wanting)

    with _in_the_way(primitive):
        found = failure(Refused.run())
    for part in ("Refused", "only", "k", "enqueue", "in a worker it"):
        assert part in found.message, found.message
    assert (found.error.reactor, found.error.step, found.error.primitive, found.error.key) == (
        "Refused",
        "only",
        primitive,
        "k",
    )


@pytest.mark.parametrize("primitive", list(DECLARED))
def test_u116_a_refused_call_names_the_class_and_the_reactor_it_is_part_of(primitive: str) -> None:
    wanting = _declaring(primitive)

    class Calls(Reactor):
        @step()
        def outer(context: Any) -> Any:
            return wanting.call(context=context)

    with _in_the_way(primitive), pytest.raises(ContentionError) as caught:
        wanting.call()
    with _in_the_way(primitive):
        inside = failure(Calls.run()).error
    assert (caught.value.reactor, caught.value.step, caught.value.key) == ("Wanting", "Wanting", "k")
    assert (inside.reactor, inside.step, inside.key) == ("Calls", "Wanting", "k")
    assert "Calls" in str(inside)
    for error in (caught.value, inside):
        assert "Wanting" in str(error)
        assert "enqueue" in str(error)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"on_contention": "fail"}, "declare on_contention='park'"),
        ({"on_contention": "wait", "wait": 0.01}, "raise wait=0.01"),
    ],
)
def test_u116_in_a_worker_the_remedy_is_the_policy(
    options: dict[str, Any], remedy: str, reactor_dispatches: Any
) -> None:
    class Refused(Reactor):
        @step()
        @with_lock("k", **options)
        def only() -> None: ...

    with testing.hold("k"):
        handle = Refused.enqueue()
        testing.drain()
    found = handle.execution.failure
    assert found is not None
    assert remedy in found["message"]


def test_u116_a_refused_undo_says_how_to_undo_it_again() -> None:
    class Undone(Reactor):
        @step()
        @with_lock("k", ttl=5, rollback_wait=0.05)
        def only() -> None: ...

        @only.undo
        def _(result: Any) -> None: ...

        @step(after=only)
        def behind() -> None:
            held.append(testing.hold("k"))
            held[0].__enter__()
            raise ArithmeticError("behind")

    held: list[Any] = []
    (left,) = failure(Undone.run()).rollback_failures
    held[0].__exit__(None, None, None)
    assert left.key == "k"
    assert "Undo it again when it is free, or raise rollback_wait=0.05" in left.message


def test_u116_a_key_that_cannot_be_had_in_a_call_names_the_class() -> None:
    @with_lock(lambda arguments: None)
    class Keyless(Step):
        def run(self) -> None: ...

    with pytest.raises(CoordinationKeyError) as caught:
        Keyless.call()
    assert (caught.value.reactor, caught.value.step) == ("Keyless", "Keyless")


@with_lock("{key}", ttl=1.5)
class _Losing(Step):
    key = Input(str)

    def run(self) -> None:
        holds = self.context.holds
        take_away(self.key)
        eventually(lambda: holds[self.key].lost)


def test_a_call_that_lost_its_lock_names_class_and_primitive() -> None:
    with pytest.raises(LockLost) as caught:
        _Losing.call(key="k")
    assert (caught.value.reactor, caught.value.step, caught.value.primitive) == ("_Losing", "_Losing", "lock")
    assert str(caught.value).startswith("_Losing lost its hold on k")
