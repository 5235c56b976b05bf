"""Inline steps: a function is a step like any other; moved verbatim to a class it changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import DefinitionError, Input, Reactor, Retry, Step, step, with_lock
from reactor_coord.declare.nodes import Attached
from reactor_coord.results import Decided, Skipped

calls: list[tuple[Any, ...]] = []


class Speaker:
    """The least of a context."""

    def skip(self, value: Any = None, reason: str | None = None) -> None:
        raise Decided(Skipped(value, reason))


class Flow(Reactor):
    """One inline step with everything, one with nothing."""

    account_id = Input(int)
    secret = Input(str, redact=True)

    @step(receipt="r", account_id=account_id, retry=Retry(2), atomic=True, limit=7)
    @with_lock("acct:{account_id}:{limit}")
    def notify(receipt: Any, account_id: Any, context: Any) -> Any:
        """Tell them."""
        calls.append(("run", receipt, account_id, context))
        return "sent"

    @notify.undo
    def _(result: Any, receipt: Any, context: Any) -> None:
        calls.append(("undo", result, receipt, context))

    @notify.compensate
    def _(problem: Any, account_id: Any) -> None:
        calls.append(("compensate", problem, account_id))

    @notify.guard
    def _(account_id: Any, context: Any) -> None:
        if account_id == 0:
            context.skip(reason="nobody")

    @step
    def bare(account_id: Any, secret: Any, colour: str = "red", **rest: Any) -> Any:
        return (account_id, secret, colour, rest)

    @step(first=notify)
    @staticmethod
    def static(first: str) -> str:
        return first.upper()


def bound(name: str, context: Any = None, **arguments: Any) -> Any:
    step_class = Flow.definition.step(name).step_class
    assert step_class is not None
    return step_class.bind(arguments, context)


def test_it_compiles_to_a_step_class() -> None:
    definition = Flow.definition.step("notify")
    step_class = definition.step_class
    assert step_class is not None
    assert issubclass(step_class, Step)
    assert step_class.__qualname__ == "Flow.notify"
    assert step_class.__doc__ == "Tell them."
    assert step_class.__module__ == Flow.__module__
    assert definition.inline
    assert definition.schema is None
    assert definition.retry == step_class.retry == Retry(2)
    assert step_class.atomic
    assert (step_class.has_undo, step_class.has_compensate, step_class.has_guard) == (True, True, True)
    assert list(Flow.definition.steps) == ["notify", "bare", "static"]


def test_each_function_gets_what_it_names() -> None:
    calls.clear()
    context = Speaker()
    instance = bound("notify", context, receipt="r", account_id=3, limit=7)
    assert instance.run() == "sent"
    instance.undo("sent")
    error = ValueError()
    instance.compensate(error)
    assert calls == [("run", "r", 3, context), ("undo", "sent", "r", context), ("compensate", error, 3)]
    with pytest.raises(Decided):
        bound("notify", context, receipt="r", account_id=0, limit=7).guard()
    assert instance.guard() is None


def test_parameters_are_wired_by_name_and_defaults_are_arguments() -> None:
    arguments = Flow.definition.step("bare").arguments
    assert list(arguments) == ["account_id", "secret", "colour"]
    assert arguments["secret"].inputs() == {"secret"}
    assert Flow.definition.step("bare").redacted == {"secret"}
    assert bound("bare", account_id=1, secret="s", colour="blue", more=2).run() == (1, "s", "blue", {"more": 2})


def test_a_static_method_is_its_function() -> None:
    assert bound("static", first="a").run() == "A"


def test_a_key_may_read_an_argument_the_function_does_not_take() -> None:
    definition = Flow.definition.step("notify")
    (key,) = definition.coordination["lock"].keys
    assert key.compute({"account_id": 1, "limit": 7}) == "acct:1:7"


def test_what_undo_leaves_in_the_class_is_no_step() -> None:
    assert isinstance(vars(Flow)["_"], Attached)


def test_a_rollback_named_like_the_step_is_fine_too() -> None:
    class Named(Reactor):
        @step()
        def work() -> int:
            return 1

        @work.undo  # type: ignore[no-redef]
        def work(result: Any) -> None: ...

    found = Named.definition.step("work").step_class
    assert found is not None
    assert found.has_undo


def test_moved_to_a_class_it_reads_the_same() -> None:
    @with_lock("acct:{account_id}")
    class Work(Step):
        account_id = Input(int)

        def run(self) -> int:
            return self.account_id

    class AsClass(Reactor):
        account_id = Input(int)
        work = step(Work)

    class AsFunction(Reactor):
        account_id = Input(int)

        @step()
        @with_lock("acct:{account_id}")
        def work(account_id: Any) -> Any:
            return account_id

    one, other = AsClass.definition.step("work"), AsFunction.definition.step("work")
    assert one.coordination == other.coordination
    assert one.depends_on == other.depends_on
    assert list(one.arguments) == list(other.arguments)


def flow(*functions: Any, **options: Any) -> type[Reactor]:
    node = step(**options)(functions[0])
    for role, function in zip(("undo", "compensate"), functions[1:], strict=False):
        getattr(node, role)(function)
    return type("Bad", (Reactor,), {"account_id": Input(int), "amount": Input(int), "work": node})


async def asynchronous() -> None: ...


def keyword(amount: Any) -> Any:
    return amount


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: flow(keyword, amuont=1),
            "step 'work' of Bad: keyword has no parameter 'amuont'. Did you mean 'amount'?",
        ),
        (lambda: flow(lambda total: 1), r"nothing wires the parameter 'total' of its run function"),
        (lambda: flow(lambda total: 1), r"@step\(total=\.\.\.\), or declare total = Input\(\.\.\.\) on Bad"),
        (lambda: flow(lambda acount_id: 1), "Did you mean 'account_id'"),
        (lambda: flow(keyword, lambda result, total: 1), "'total' of its undo function"),
        (lambda: flow(lambda result: 1, lambda result: 1, result=1), "'result' is an argument of the step.*undo"),
        (
            lambda: flow(keyword, lambda account_id: 1),
            "in its undo, 'account_id' could be the result or the input of Bad",
        ),
        (lambda: flow(lambda *args: 1), r"arguments come by keyword, so \*args"),
        (lambda: flow(eval("lambda a, /: 1"), a=1), "arguments come by keyword"),
        (lambda: flow(asynchronous), "@step asynchronous is async"),
        (lambda: flow(keyword, asynchronous), "@keyword.undo is async"),
        (lambda: step()(Flow), "for functions"),
        (lambda: step()(3), "not a function"),  # type: ignore[arg-type]
        (lambda: step(3), "takes a Step class, or decorates a function"),  # type: ignore[call-overload]
        (lambda: step(atomic=1), "atomic must be True or False"),  # type: ignore[call-overload]
        (lambda: step(retry=3)(keyword), "must be a Retry"),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_called_is_refused_at_import(make: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make()


def test_rollback_is_attached_once_and_only_to_functions() -> None:
    class Work(Step):
        def run(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"step\(Work, \.\.\.\)\.undo: only an inline step.*def undo\(self"):
        step(Work).undo(lambda result: None)
    node = step()(keyword)
    node.undo(lambda result: None)
    with pytest.raises(DefinitionError, match=r"@keyword\.undo is given twice"):
        node.undo(lambda result: None)
    with pytest.raises(DefinitionError, match="under the step's own holds"):
        node.compensate(with_lock("a")(lambda error: None))
