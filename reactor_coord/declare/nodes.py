"""The words for a reactor's body: `step`, `compose`, `map_each`, `interrupt`, `async_step`, `async_reactor`.

Each makes a `StepNode`: what was written, kept as it was. Names and owners are not known yet; the compiler verifies it all
when the class is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from reactor_coord.declare import options as check
from reactor_coord.declare.body import Declared, note_made
from reactor_coord.declare.coordination import Declaration
from reactor_coord.declare.decorators import Coordination, declarations_in, marked, merged
from reactor_coord.declare.functions import check_function
from reactor_coord.declare.inline import Body, body_of
from reactor_coord.declare.keywords import checked_call, option_names
from reactor_coord.declare.payload import payload_of
from reactor_coord.declare.references import (
    CallRef,
    CollectionRef,
    Constant,
    OutcomeRef,
    OwnName,
    Reference,
    StepRef,
    as_reference,
    is_queryset,
)
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.shown import shown
from reactor_coord.declare.step import Step
from reactor_coord.errors import DefinitionError

if TYPE_CHECKING:
    import datetime as dt

    from reactor_coord.declare.reactor import Reactor

After: TypeAlias = "StepRef | str | Iterable[StepRef | str]"
Coordinations: TypeAlias = "Coordination | Iterable[Coordination]"
F = TypeVar("F", bound=Callable[..., Any])


class InlineDecorator(Protocol):
    """What `@step(...)` is before it meets its function."""

    def __call__(self, function: Callable[..., Any], /) -> StepNode: ...


class Attached:
    """What `@notify.undo` leaves under the function's name: nothing that is a step, nothing to call."""

    def __init__(self, role: str, node: StepNode) -> None:
        self.role, self.node = role, node

    def __repr__(self) -> str:
        return f"<{self.role} of {self.node!r}>"


class StepNode(StepRef, Declared):
    """One step as written in a reactor's body. As a reference, it is the step's value to come."""

    kind_of_declaration = "step"

    def __init__(
        self,
        kind: str,
        target: type[Any] | None,
        arguments: Mapping[str, Any],
        *,
        after: Any = (),
        where: Any = None,
        retry: Any = None,
        name: Any = None,
        coordination: Any = (),
        more: Mapping[str, Any] | None = None,
        bodies: Mapping[str, Body] | None = None,
        atomic: bool | None = None,
        options: Mapping[str, Any] | None = None,
        renamed_from: Any = None,
    ) -> None:
        super().__init__(OwnName())
        place = _WORDS[kind]
        if isinstance(name, Reference):
            # A step's own name is a text, so a reference can only be meant for an input called `name`.
            arguments, name = {**arguments, "name": name}, None
        if isinstance(retry, Reference):
            raise DefinitionError(f"{place}(retry={shown(retry)}): retry takes a Retry, as in Retry(max_attempts=3).")
        if retry is not None and not isinstance(retry, Retry):
            raise DefinitionError(f"{place}(retry={shown(retry)}): must be a Retry, as in Retry(max_attempts=3).")
        self.kind, self.target = kind, target
        self.arguments: dict[str, Reference] = _arguments(place, arguments, more)
        self.after, self.where, self.retry, self.given_name = after, where, retry, name
        check.optional_text(place, "renamed_from", renamed_from, longest=100)
        self.renamed_from: str | None = renamed_from
        self.declared: Mapping[str, Declaration] = declarations_in(place, coordination)
        self.bodies: dict[str, Body] = dict(bodies or {})
        self.atomic = atomic
        self.options: dict[str, Any] = dict(options or {})
        self.owner: type[Any] | None = None
        self.attribute = ""
        note_made(self, needs_a_name=True)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        # The first name counts; a second one is refused by the compiler, since an error here would come out wrapped.
        if not self.attribute:
            self.owner, self.attribute = owner, name
            self.name = OwnName(self.given_name if isinstance(self.given_name, str) else name)

    def __repr__(self) -> str:
        return self.name or f"{_WORDS[self.kind]}({getattr(self.target, '__name__', '...')})"

    @property
    def outcome(self) -> Reference:
        """How the work on the side ended, for a step that judges it: a `Success` with its value, or the `Failure`.

        The error of the `Failure` is a text, "<type>: <message>". Only of a step with `fails_parent=False`.
        """
        if self.options.get("fails_parent") is not False:
            raise DefinitionError(
                f"{self!r}.outcome: only an async_step or async_reactor with fails_parent=False has an outcome to be judged; "
                "the failure of any other step fails the reactor before it could be read."
            )
        return OutcomeRef(self)

    @property
    def is_inline(self) -> bool:
        """Whether it was made from a function."""
        return "run" in self.bodies

    @property
    def word(self) -> str:
        """The word it was written with: `step`, `map_each`, ..."""
        return _WORDS[self.kind]

    def undo(self, function: F) -> Any:
        """Decorator: `function(result, **arguments)` takes this step back when a later one failed."""
        return self._attach("undo", function)

    def compensate(self, function: F) -> Any:
        """Decorator: `function(error, **arguments)` cleans up after this step itself failed."""
        return self._attach("compensate", function)

    def guard(self, function: F) -> Any:
        """Decorator: `function(**arguments)` runs before anything is taken and answers as `Step.guard` does.

        Name a parameter `context` for `context.fail(...)` and the like, or return `Failure`, `Skipped` or `Halt`.
        """
        return self._attach("guard", function)

    def coordinate(self, declaration: Declaration) -> None:
        """Take a declaration from a `with_*` put above `@step(...)`."""
        self._check_open(f"with_{declaration.primitive}")
        self.declared = merged(f"{self.word} {self!r}", self.declared, declaration)

    def _check_open(self, place: str) -> None:
        """Refuse what comes when the reactor has been built: it would go on without it, and only its subclasses have it."""
        if self.owner is not None:
            raise DefinitionError(
                f"{place}: {self.owner.__name__} has been built with the step {self!r} as it was, and would go on without it. "
                f"Write it in the body of {self.owner.__name__}, or declare the step again in a subclass."
            )

    def _attach(self, role: str, function: Callable[..., Any]) -> Any:
        if not self.is_inline:
            target = getattr(self.target, "__name__", self.word)
            raise DefinitionError(
                f"{self.word}({target}, ...).{role}: only an inline step takes it; write def {role}(self, ...) on {target}."
            )
        name = self.bodies["run"].name
        place = f"@{name}.{role}"
        self._check_open(place)
        if role in self.bodies:
            raise DefinitionError(f"{place} is given twice; one step has one {role}.")
        if marked(function):
            raise DefinitionError(f"{place}: with_* goes on the step; its {role} runs under the step's own holds.")
        self.bodies[role] = body_of(place, function)
        return self if self.bodies[role].name == name else Attached(role, self)


_WORDS: Mapping[str, str] = {
    "step": "step",
    "compose": "compose",
    "map": "map_each",
    "interrupt": "interrupt",
    "async_step": "async_step",
    "async_reactor": "async_reactor",
}


@overload
def step(
    target: type[Step],
    /,
    *,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode: ...
@overload
def step(target: Callable[..., Any], /) -> StepNode: ...
@overload
def step(
    *,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    atomic: bool = False,
    **inputs: Any,
) -> InlineDecorator: ...
@checked_call
def step(
    target: Any = None,
    /,
    *,
    after: Any = (),
    where: Any = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Any = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Any:
    """One step of a reactor: `charge = step(Charge, amount=amount)`, or `@step(amount=amount)` above a function.

    Keywords are the step's inputs: references or plain values; one that is not given is taken from the reactor's input of
    the same name. `after`: a step, or a list of them, to wait for without reading its value. `where`: a function of the
    step's arguments (by name); false skips the step. `retry` and `coordination=[with_lock(...)]` win over the class's own.
    `name`: the step's name when the attribute's will not do. `arguments={...}`: inputs whose names are options here.
    `atomic=True` on an inline step: as on a class. `renamed_from="old"`: the name that the step had before, for executions under
    way that have run it; so for every kind of step.
    """
    settings: dict[str, Any] = {
        "after": after,
        "where": where,
        "retry": retry,
        "name": name,
        "renamed_from": renamed_from,
        "coordination": coordination,
    }
    if inspect.isclass(target):
        return StepNode("step", _step_class("step", target), inputs, more=arguments, **settings)
    if target is not None and not callable(target):
        raise DefinitionError(
            f"step({shown(target)}): takes a Step class, or decorates a function; values go by keyword."
        )
    atomic = check.flag("step", "atomic", inputs.pop("atomic", False))

    def decorate(function: Callable[..., Any], /) -> StepNode:
        word = f"@step {getattr(function, '__name__', function)}"
        if inspect.isclass(function):
            raise DefinitionError(f"@step is for functions; write name = step({function.__name__}, ...) for a class.")
        node = StepNode(
            "step", None, inputs, more=arguments, bodies={"run": body_of(word, function)}, atomic=atomic, **settings
        )
        for declaration in marked(function).values():
            node.declared = merged(word, node.declared, declaration)
        return node

    return decorate if target is None else decorate(target)


@checked_call
def compose(
    reactor: type[Reactor],
    /,
    *,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """A reactor nested in this execution: its failure rolls this one back, its steps are undone with this one's.

    `coordination` is held around the nested reactor, beside what that declares itself. `retry`: a failure undoes the nested
    reactor alone, and it runs afresh.
    """
    return StepNode(
        "compose",
        _reactor_class("compose", reactor),
        inputs,
        after=after,
        where=where,
        retry=retry,
        name=name,
        renamed_from=renamed_from,
        coordination=coordination,
        more=arguments,
    )


@checked_call
def map_each(
    target: type[Step] | type[Reactor],
    /,
    *,
    over: Any,
    batch_size: int | None = None,
    concurrency: int | None = None,
    fail_fast: bool = True,
    collect: Callable[..., Any] | None = None,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """The same step or reactor for each item of `over`; `element()` in the arguments is the item.

    `over`: a reference to a list, a list, a queryset, or a function of nothing that returns one of these. A queryset or a
    function is asked when the map begins, each time anew. An element cannot pause: no interrupt in it, at any depth.
    `batch_size`: elements dispatched at a time; `concurrency`: most that run at once (`None`: `batch_size`, or 50).
    `collect`: a function of the list of values, whose result is this step's value; without it, that list. `fail_fast`: the first
    element that fails ends the map; if false all run, those that fail are undone alone, and `collect` is given their `Failure`;
    without a `collect` the map fails then.
    """
    more = {
        "over": _source(over),
        "batch_size": None if batch_size is None else check.count("map_each", "batch_size", batch_size),
        "concurrency": None if concurrency is None else check.count("map_each", "concurrency", concurrency),
        "fail_fast": check.flag("map_each", "fail_fast", fail_fast),
        "collect": collect,
    }
    if collect is not None and not callable(collect):
        raise check.bad("map_each", "collect", collect, "must be a function of the list of values.")
    if collect is not None:
        check_function("map_each(collect=...)", collect, 1, "with the list of values")
    return StepNode(
        "map",
        _either_class("map_each", target),
        inputs,
        after=after,
        where=where,
        retry=retry,
        name=name,
        renamed_from=renamed_from,
        coordination=coordination,
        more=arguments,
        options=more,
    )


@checked_call
def interrupt(
    *,
    correlation_id: Any = None,
    payload: Any = None,
    timeout: float | dt.timedelta | None = None,
    after: After = (),
    where: Callable[..., Any] | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """Pause until somebody resumes with a payload, which is this step's value.

    `correlation_id`: a text, or a reference to one, by which the answer finds this execution (`None`: its own id).
    `payload`: a mapping of names to types, or a pydantic model class. `timeout`: seconds or a `timedelta`; then it fails.
    """
    more = {
        "correlation_id": None if correlation_id is None else as_reference(correlation_id),
        "payload": payload_of("interrupt", payload),
        "timeout": check.optional_seconds("interrupt", "timeout", timeout, above=True),
    }
    if isinstance(more["correlation_id"], Constant | CollectionRef) and not isinstance(correlation_id, str):
        raise check.bad("interrupt", "correlation_id", correlation_id, "must be a text or a reference to one.")
    return StepNode(
        "interrupt",
        None,
        inputs,
        after=after,
        where=where,
        name=name,
        renamed_from=renamed_from,
        coordination=coordination,
        more=arguments,
        options=more,
    )


@checked_call
def async_step(
    target: type[Step],
    /,
    *,
    detach: bool = False,
    fails_parent: bool = True,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """A step dispatched to a worker of its own while the rest goes on; a step that reads its value waits for it.

    At its end the reactor waits for it too, and if it fails the reactor fails and rolls back, though no step read it.
    `detach=True`: it is not waited for, and runs even when this execution rolls back before it began.
    `fails_parent=False`: its failure is not the reactor's. A step that reads its value then fails; one that reads `.outcome`
    gets a `Success`, or the `Failure`, and judges.
    """
    return StepNode(
        "async_step",
        _step_class("async_step", target),
        inputs,
        after=after,
        where=where,
        retry=retry,
        name=name,
        renamed_from=renamed_from,
        coordination=coordination,
        more=arguments,
        options=_unit_options("async_step", detach, fails_parent),
    )


@checked_call
def async_reactor(
    reactor: type[Reactor],
    /,
    *,
    detach: bool = False,
    fails_parent: bool = True,
    after: After = (),
    where: Callable[..., Any] | None = None,
    name: Any = None,
    renamed_from: str | None = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """A reactor dispatched to a worker of its own while the rest goes on. `detach`, `fails_parent`: as with `async_step`."""
    return StepNode(
        "async_reactor",
        _reactor_class("async_reactor", reactor),
        inputs,
        after=after,
        where=where,
        name=name,
        renamed_from=renamed_from,
        coordination=coordination,
        more=arguments,
        options=_unit_options("async_reactor", detach, fails_parent),
    )


def _unit_options(word: str, detach: bool, fails_parent: bool) -> dict[str, bool]:
    return {
        "detach": check.flag(word, "detach", detach),
        "fails_parent": check.flag(word, "fails_parent", fails_parent),
    }


def _source(over: Any) -> Reference:
    """Where a map's items come from. Nothing is read while the class is being built."""
    if isinstance(over, Reference | list | tuple) or is_queryset(over):
        return as_reference(over)
    if hasattr(over, "get_queryset"):
        return CallRef(over.all)
    if callable(over) and not isinstance(over, type):
        check_function("map_each(over=...)", over, 0, "with nothing")
        return CallRef(over)
    rule = (
        "must be a reference to a list (an input or a step), a list, a queryset, or a function of nothing that returns one "
        f"of these, as in over=lambda: Order.objects.filter(paid=True); this is of type {type(over).__name__}."
    )
    raise check.bad("map_each", "over", over, rule)


OPTIONS: Mapping[str, frozenset[str]] = {
    word.__name__: frozenset(option_names(word))
    for word in (step, compose, map_each, interrupt, async_step, async_reactor)
}
"""The options of each word: every keyword of it that is no input of its target."""


def is_reactor(target: Any) -> bool:
    """Whether it is a reactor class (told by its definition: this module is below the one that has `Reactor`)."""
    return isinstance(target, type) and hasattr(target, "definition") and not issubclass(target, Step)


def _is_step(target: Any) -> bool:
    return isinstance(target, type) and issubclass(target, Step)


def _step_class(word: str, target: Any) -> type[Any]:
    if is_reactor(target):
        other = {"step": "compose", "async_step": "async_reactor"}[word]
        raise DefinitionError(
            f"{word}({target.__name__}, ...): that is a reactor; write {other}({target.__name__}, ...)."
        )
    if not _is_step(target) or target is Step:
        raise DefinitionError(f"{word}({shown(target)}, ...): the first argument must be a subclass of Step.")
    return _runnable(word, target)


def _reactor_class(word: str, target: Any) -> type[Any]:
    if _is_step(target):
        other = {"compose": "step", "async_reactor": "async_step"}[word]
        raise DefinitionError(f"{word}({target.__name__}, ...): that is a step; write {other}({target.__name__}, ...).")
    if not is_reactor(target):
        raise DefinitionError(f"{word}({shown(target)}, ...): the first argument must be a subclass of Reactor.")
    if not target.definition.steps:
        raise DefinitionError(
            f"{word}({target.__name__}, ...): {target.__name__} has no steps; give it some, or use a subclass."
        )
    return target  # type: ignore[no-any-return]


def _either_class(word: str, target: Any) -> type[Any]:
    if is_reactor(target):
        return _reactor_class(word, target)
    if not _is_step(target) or target is Step:
        raise DefinitionError(f"{word}({shown(target)}, ...): the first argument must be a Step or a Reactor class.")
    return _runnable(word, target)


def _runnable(word: str, target: type[Any]) -> type[Any]:
    if not target.has_run:
        raise DefinitionError(
            f"{word}({target.__name__}, ...): {target.__name__} has no run(self); write it, or use a subclass."
        )
    return target


def _arguments(place: str, given: Mapping[str, Any], more: Mapping[str, Any] | None) -> dict[str, Reference]:
    if more is not None and not isinstance(more, Mapping):
        raise DefinitionError(f"{place}(arguments={shown(more)}): arguments takes a mapping of input name to value.")
    extra = dict(more or {})
    for name in extra:
        if name in given:
            raise DefinitionError(f"{place}: {name!r} is given twice, by keyword and in arguments={{...}}.")
    return {name: as_reference(value) for name, value in {**given, **extra}.items()}
