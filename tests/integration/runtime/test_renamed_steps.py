"""A step that is renamed in a deploy while executions are under way: it never runs a second time under its new name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from reactor_coord import Input, Step, async_step, compose, element, interrupt, map_each, step, testing, with_lock
from reactor_coord.declare import registry
from reactor_coord.errors import DefinitionError
from reactor_coord.models import Execution, StepRun
from reactor_coord.runtime import deliver
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import runs
from tests.integration.runtime.test_begun import dies
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

Deploy = Callable[[Any, Any], None]


@with_lock("acct:{name}", ttl=5)
class Charge(Step):
    """Notes under which idempotency key it has its effect."""

    name = Input(str, default="")
    fail_at = Input(str, default="")

    def run(self) -> str:
        with current().recording("charge", key=self.context.idempotency_key.rpartition(":")[2]):
            return f"receipt of {self.name}"

    def compensate(self, error: BaseException) -> None:
        current().mark("comp charge")

    def undo(self, result: str) -> None:
        current().mark("refund", result=result)


class Payment(Named):
    """Charges, asks, and notifies of the receipt."""

    charge = step(Charge)
    review = interrupt(after=charge)
    notify = step(Work, after=review)
    returns = charge


class PaymentRenamed(Named):
    """Without a word about the step's former name."""

    take_payment = step(Charge)
    review = interrupt(after=take_payment)
    notify = step(Work, after=review)
    returns = take_payment


class PaymentSaysSo(Named):
    """With it."""

    take_payment = step(Charge, renamed_from="charge")
    review = interrupt(after=take_payment)
    notify = step(Work, after=review)
    returns = take_payment


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Have the code of the second reactor where that of the first was."""

    def replace(old: Any, new: Any) -> None:
        changed = dataclasses.replace(new.definition, name=old.definition.name, label=old.definition.label)
        monkeypatch.setitem(registry._definitions, old.definition.name, changed)

    return replace


def charges(recorder: Recorder) -> list[str]:
    """The idempotency keys under which charges began, without the execution."""
    return [body.notes["key"] for body in recorder.intervals("charge")]


def paused(reactor: Any, **inputs: Any) -> Any:
    """An execution that asks its question."""
    handle = reactor.enqueue(**inputs)
    drain()
    assert handle.status == "paused"
    return handle


def test_u59_a_finished_step_that_is_gone_sets_the_execution_aside_naming_both(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Payment, name="a")
    deploy(Payment, PaymentRenamed)
    handle.execution.resume()
    drain()
    assert handle.status == "needs_definition"
    assert "Payment has no step 'charge' any more" in handle.execution.reason
    assert 'renamed_from="charge"' in handle.execution.reason and "take_payment" in handle.execution.reason
    assert charges(recorder) == ["charge"], "it was not charged again"
    deploy(Payment, Payment)
    handle.execution.resume()
    drain()
    assert handle.status == "completed" and charges(recorder) == ["charge"]


def test_u59_a_step_that_says_its_former_name_is_done_under_the_new_one(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Payment, name="a")
    deploy(Payment, PaymentSaysSo)
    handle.execution.resume()
    drain()
    outcome = handle.wait(1)
    assert (outcome.status, outcome.value) == ("completed", "receipt of a")
    assert charges(recorder) == ["charge"]
    assert {name: run.status for name, run in runs(handle).items()} == dict.fromkeys(
        ["take_payment", "review", "notify"], "succeeded"
    )
    assert runs(handle)["take_payment"].first_name == "charge"


def test_u59_it_is_undone_under_its_new_name_with_the_result_it_had(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Payment, name="a", fail_at="notify")
    deploy(Payment, PaymentSaysSo)
    handle.execution.resume()
    drain()
    assert handle.status == "failed"
    assert recorder.sequence() == ["charge", "run notify", "comp notify", "refund"]
    assert runs(handle)["take_payment"].status == "undone"
    assert not handle.execution.why_failed.is_incomplete
    testing.assert_free("acct:a")


def test_u59_a_rollback_under_way_finds_the_step_under_its_new_name(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Payment, name="a")
    handle.cancel()
    deploy(Payment, PaymentSaysSo)
    drain()
    assert handle.status == "cancelled"
    assert recorder.sequence() == ["charge", "refund"]


@pytest.mark.parametrize("code, status, keys", [
    (PaymentSaysSo, "paused", ["charge", "charge"]),
    (PaymentRenamed, "needs_definition", ["charge"]),
])  # fmt: skip
def test_u59_a_body_in_which_the_process_died_is_of_the_step_as_it_was_called_then(
    code: Any, status: str, keys: list[str], deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    """It runs again, since nothing says how far it came, but under the one idempotency key; or not at all."""
    handle = Payment.enqueue(name="a")
    dies(lambda: deliver(handle.id, "a worker"))
    deploy(Payment, code)
    drain(timeout=20)
    assert handle.status == status
    assert charges(recorder) == keys


def test_u59_one_that_waits_for_its_key_runs_once_whatever_it_is_called(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    for code in (PaymentSaysSo, PaymentRenamed):
        deploy(Payment, Payment)
        handle = Payment.enqueue(name=code.__name__)
        with testing.hold(f"acct:{code.__name__}"):
            drain()
            assert handle.status == "parked"
        deploy(Payment, code)
        drain()
        assert handle.status == "paused"
        assert StepRun.objects.filter(execution=handle.id, status="succeeded").count() == 1
    assert len(charges(recorder)) == 2


class Inner(Named):
    """Charges and asks."""

    charge = step(Charge)
    review = interrupt(after=charge)


class InnerSaysSo(Named):
    """The same under another name."""

    take_payment = step(Charge, renamed_from="charge")
    review = interrupt(after=take_payment)


class Outer(Named):
    """Composes it."""

    pay = compose(Inner)
    notify = step(Work, after=pay)


class OuterSaysSo(Named):
    """Composes what was renamed, under another name."""

    collect_money = compose(InnerSaysSo, renamed_from="pay")
    notify = step(Work, after=collect_money)


@pytest.mark.parametrize("fail_at, status", [("", "completed"), ("notify", "failed")])
def test_u59_a_composed_reactor_and_a_step_in_it_are_renamed(
    fail_at: str, status: str, deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Outer, name="a", fail_at=fail_at)
    deploy(Outer, OuterSaysSo)
    handle.execution.resume()
    drain()
    assert handle.status == status
    assert charges(recorder) == ["charge"]
    assert recorder.sequence()[-1] == ("refund" if fail_at else "run notify")
    assert Execution.objects.get(parent=handle.id).parent_step == "collect_money"


class Fans(Named):
    """Elements and a unit beside the rest."""

    each = map_each(Charge, over=["a", "b"], name=element())
    beside = async_step(Charge, arguments={"name": "c"})
    review = interrupt(after=each)
    notify = step(Work, after=[review, beside])


class FansSaysSo(Named):
    """The same under other names."""

    charges = map_each(Charge, over=["a", "b"], name=element(), renamed_from="each")
    aside = async_step(Charge, arguments={"name": "c"}, renamed_from="beside")
    review = interrupt(after=charges)
    notify = step(Work, after=[review, aside])


@pytest.mark.parametrize("fail_at, status", [("", "completed"), ("notify", "failed")])
def test_u59_handed_off_work_is_found_under_the_new_name(
    fail_at: str, status: str, deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = paused(Fans, fail_at=fail_at)
    deploy(Fans, FansSaysSo)
    handle.execution.resume()
    drain(timeout=20)
    assert handle.status == status, handle.execution.reason
    assert len(charges(recorder)) == 3
    refunds = [each for each in recorder.sequence() if each == "refund"]
    assert len(refunds) == (3 if fail_at else 0)


def test_u59_units_that_have_not_begun_run_under_the_new_name(
    deploy: Deploy, recorder: Recorder, reactor_dispatches: Any
) -> None:
    handle = Fans.enqueue()
    with testing.hold("acct:c"), testing.hold("acct:a"), testing.hold("acct:b"):
        drain()
    deploy(Fans, FansSaysSo)
    drain(timeout=20)
    assert handle.status == "paused"
    assert len(charges(recorder)) == 3


@pytest.mark.parametrize("options, problem", [
    ({"first": None, "second": "first"}, "has a step of that name"),
    ({"first": "old", "second": "old"}, "which 'first' says, too"),
    ({"first": 5}, "renamed_from"),
    ({"first": ""}, "renamed_from"),
])  # fmt: skip
def test_a_former_name_that_says_two_things_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        type("Wrong", (Named,), {name: step(Work, renamed_from=former) for name, former in options.items()})
