"""A body, an undo or a `where` that hands back a coroutine has done nothing, and is not taken for one that has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reactor_coord import DefinitionError, Input, Reactor, Step, step, testing, with_lock
from reactor_coord.errors import CodecError
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import failure, runs
from tests.live.reactors import Work

pytestmark = pytest.mark.django_db(transaction=True)


async def charge() -> str:
    return "charged"


def charges() -> Iterator[str]:
    yield "charged"


@with_lock("unawaited", ttl=5)
class Unawaited(Step):
    """What it returns, or says, is yet to be done."""

    says = Input(bool, default=False)

    def run(self) -> Any:
        if self.says:
            self.succeed(charge())
        return charge()


@with_lock("unawaited", ttl=5)
class Lazy(Step):
    """Its value would do its work when its lock is free."""

    def run(self) -> Any:
        return charges()


@pytest.mark.parametrize("says", [False, True])
def test_u58_a_body_that_returns_a_coroutine_has_not_run(says: bool, recorder: Recorder) -> None:
    with pytest.raises(DefinitionError, match="coroutine was returned"):
        Unawaited.call(says=says)
    testing.assert_free("unawaited")

    class Flow(Reactor):
        says = Input(bool)
        work = step(Unawaited)

    assert failure(Flow.run(says=says)).error_type == "DefinitionError"


def test_u58_nor_has_one_that_returns_a_generator(recorder: Recorder) -> None:
    with pytest.raises(CodecError, match="generator was returned"):
        Lazy.call()


def test_an_undo_that_returns_a_coroutine_is_not_taken_for_done(recorder: Recorder) -> None:
    class Refunds(Work):
        def undo(self, result: dict[str, Any]) -> Any:
            return charge()

    class Flow(Reactor):
        fail_at = Input(str)
        charge = step(Refunds)
        behind = step(Work, after=charge)

    outcome = Flow.run(fail_at="behind")
    assert runs(outcome)["charge"].status == "undo_failed"
    (left,) = failure(outcome).rollback_failures
    assert "coroutine was returned" in left.message


def test_a_where_that_returns_a_coroutine_lets_nothing_run(recorder: Recorder) -> None:
    class Flow(Reactor):
        work = step(Work, where=lambda: charge())

    assert failure(Flow.run()).error_type == "DefinitionError"
    assert recorder.count("run work") == 0

    class Asked(Work):
        def where(self) -> Any:
            return charge()

    with pytest.raises(DefinitionError, match="coroutine"):
        Asked.call()
