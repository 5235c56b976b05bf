"""The words for a reactor's body: `step`, `compose`, `map_each`, `interrupt`, `async_step`, `async_reactor`.

Each makes a `StepNode`: what was written, kept as it was. Names and owners are not known yet; the compiler verifies it all
when the class is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from reactor_coord.declare import options as check
from reactor_coord.declare.coordination import Declaration
from reactor_coord.declare.decorators import Coordination, declarations_in, marked, merged
from reactor_coord.declare.inline import Body, body_of
from reactor_coord.declare.payload import payload_of
from reactor_coord.declare.references import CollectionRef, Constant, Reference, StepRef, as_reference
from reactor_coord.declare.retry import Retry
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


class StepNode(StepRef):
    """One step as written in a reactor's body. As a reference, it is the step's value to come."""

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
    ) -> None:
        super().__init__("")
        place = _WORDS[kind]
        if isinstance(name, Reference):
            # A step's own name is a text, so a reference can only be meant for an input called `name`.
            arguments, name = {**arguments, "name": name}, None
        if isinstance(retry, Reference):
            raise DefinitionError(f"{place}(retry={retry!r}): retry takes a Retry, as in Retry(max_attempts=3).")
        if retry is not None and not isinstance(retry, Retry):
            raise DefinitionError(f"{place}(retry={retry!r}): must be a Retry, as in Retry(max_attempts=3).")
        self.kind, self.target = kind, target
        self.arguments: dict[str, Reference] = _arguments(place, arguments, more)
        self.after, self.where, self.retry, self.given_name = after, where, retry, name
        self.declared: Mapping[str, Declaration] = declarations_in(place, coordination)
        self.bodies: dict[str, Body] = dict(bodies or {})
        self.atomic = atomic
        self.options: dict[str, Any] = dict(options or {})
        self.owner: type[Any] | None = None
        self.attribute = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        # The first name counts; a second one is refused by the compiler, since an error here would come out wrapped.
        if not self.attribute:
            self.owner, self.attribute = owner, name
            self.name = self.given_name if isinstance(self.given_name, str) else name

    def __repr__(self) -> str:
        return self.name or f"{_WORDS[self.kind]}({getattr(self.target, '__name__', '...')})"

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
        """Decorator: `function(**arguments)` runs before anything is taken; name `context` to skip, halt or fail."""
        return self._attach("guard", function)

    def coordinate(self, declaration: Declaration) -> None:
        """Take a declaration from a `with_*` put above `@step(...)`."""
        self.declared = merged(f"{self.word} {self!r}", self.declared, declaration)

    def _attach(self, role: str, function: Callable[..., Any]) -> Any:
        if not self.is_inline:
            target = getattr(self.target, "__name__", self.word)
            raise DefinitionError(
                f"{self.word}({target}, ...).{role}: only an inline step takes it; write def {role}(self, ...) on {target}."
            )
        name = self.bodies["run"].name
        place = f"@{name}.{role}"
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
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    atomic: bool = False,
    **inputs: Any,
) -> InlineDecorator: ...
def step(
    target: Any = None,
    /,
    *,
    after: Any = (),
    where: Any = None,
    retry: Retry | None = None,
    name: Any = None,
    coordination: Any = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Any:
    """One step of a reactor: `charge = step(Charge, amount=amount)`, or `@step(amount=amount)` above a function.

    Keywords are the step's inputs: references or plain values; one that is not given is taken from the reactor's input of
    the same name. `after`: a step, or a list of them, to wait for without reading its value. `where`: a function of the
    step's arguments (by name); false skips the step. `retry` and `coordination=[with_lock(...)]` win over the class's own.
    `name`: the step's name when the attribute's will not do. `arguments={...}`: inputs whose names are options here.
    `atomic=True` on an inline step: as on a class.
    """
    settings: dict[str, Any] = {
        "after": after,
        "where": where,
        "retry": retry,
        "name": name,
        "coordination": coordination,
    }
    if inspect.isclass(target):
        return StepNode("step", _step_class("step", target), inputs, more=arguments, **settings)
    if target is not None and not callable(target):
        raise DefinitionError(f"step({target!r}): takes a Step class, or decorates a function; values go by keyword.")
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


def compose(
    reactor: type[Reactor],
    /,
    *,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
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
        coordination=coordination,
        more=arguments,
    )


def map_each(
    target: type[Step] | type[Reactor],
    /,
    *,
    over: Any,
    batch_size: int | None = None,
    concurrency: int | None = None,
    fail_fast: bool = True,
    collect: Callable[..., Any] | None = None,
    undo_all: bool = False,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """The same step or reactor for each item of `over`; `element()` in the arguments is the item.

    `batch_size`: elements dispatched at a time; `concurrency`: most that run at once (`None`: no bound). `fail_fast`:
    the first failure stops the rest. `collect`: a function of the list of values, whose result is this step's value.
    `undo_all`: undo succeeded elements even when only some of them succeeded and the map went on.
    """
    more = {
        "over": as_reference(over),
        "batch_size": None if batch_size is None else check.count("map_each", "batch_size", batch_size),
        "concurrency": None if concurrency is None else check.count("map_each", "concurrency", concurrency),
        "fail_fast": check.flag("map_each", "fail_fast", fail_fast),
        "undo_all": check.flag("map_each", "undo_all", undo_all),
        "collect": collect,
    }
    if collect is not None and not callable(collect):
        raise check.bad("map_each", "collect", collect, "must be a function of the list of values.")
    if isinstance(more["over"], Constant) and not isinstance(over, list | tuple):
        raise check.bad("map_each", "over", over, "must be a reference to a list (an input or a step), or a list.")
    return StepNode(
        "map",
        _either_class("map_each", target),
        inputs,
        after=after,
        where=where,
        retry=retry,
        name=name,
        coordination=coordination,
        more=arguments,
        options=more,
    )


def interrupt(
    *,
    correlation_id: Any = None,
    payload: Any = None,
    timeout: float | dt.timedelta | None = None,
    after: After = (),
    where: Callable[..., Any] | None = None,
    name: Any = None,
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
        coordination=coordination,
        more=arguments,
        options=more,
    )


def async_step(
    target: type[Step],
    /,
    *,
    detach: bool = False,
    after: After = (),
    where: Callable[..., Any] | None = None,
    retry: Retry | None = None,
    name: Any = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """A step dispatched to a worker of its own while the rest goes on; whoever reads its value waits for it.

    `detach=True`: it runs even when this execution rolls back before it began.
    """
    return StepNode(
        "async_step",
        _step_class("async_step", target),
        inputs,
        after=after,
        where=where,
        retry=retry,
        name=name,
        coordination=coordination,
        more=arguments,
        options={"detach": check.flag("async_step", "detach", detach)},
    )


def async_reactor(
    reactor: type[Reactor],
    /,
    *,
    detach: bool = False,
    after: After = (),
    where: Callable[..., Any] | None = None,
    name: Any = None,
    coordination: Coordinations = (),
    arguments: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> StepNode:
    """A reactor dispatched to a worker of its own while the rest goes on. `detach`: as with `async_step`."""
    return StepNode(
        "async_reactor",
        _reactor_class("async_reactor", reactor),
        inputs,
        after=after,
        where=where,
        name=name,
        coordination=coordination,
        more=arguments,
        options={"detach": check.flag("async_reactor", "detach", detach)},
    )


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
        raise DefinitionError(f"{word}({_shown(target)}, ...): the first argument must be a subclass of Step.")
    return _runnable(word, target)


def _reactor_class(word: str, target: Any) -> type[Any]:
    if _is_step(target):
        other = {"compose": "step", "async_reactor": "async_step"}[word]
        raise DefinitionError(f"{word}({target.__name__}, ...): that is a step; write {other}({target.__name__}, ...).")
    if not is_reactor(target):
        raise DefinitionError(f"{word}({_shown(target)}, ...): the first argument must be a subclass of Reactor.")
    if not target.definition.steps:
        raise DefinitionError(
            f"{word}({target.__name__}, ...): {target.__name__} has no steps; give it some, or use a subclass."
        )
    return target  # type: ignore[no-any-return]


def _either_class(word: str, target: Any) -> type[Any]:
    if is_reactor(target):
        return _reactor_class(word, target)
    if not _is_step(target) or target is Step:
        raise DefinitionError(f"{word}({_shown(target)}, ...): the first argument must be a Step or a Reactor class.")
    return _runnable(word, target)


def _runnable(word: str, target: type[Any]) -> type[Any]:
    if not target.has_run:
        raise DefinitionError(
            f"{word}({target.__name__}, ...): {target.__name__} has no run(self); write it, or use a subclass."
        )
    return target


def _shown(target: Any) -> str:
    return target.__name__ if isinstance(target, type) else repr(target)


def _arguments(place: str, given: Mapping[str, Any], more: Mapping[str, Any] | None) -> dict[str, Reference]:
    if more is not None and not isinstance(more, Mapping):
        raise DefinitionError(f"{place}(arguments={more!r}): arguments takes a mapping of input name to value.")
    extra = dict(more or {})
    for name in extra:
        if name in given:
            raise DefinitionError(f"{place}: {name!r} is given twice, by keyword and in arguments={{...}}.")
    return {name: as_reference(value) for name, value in {**given, **extra}.items()}
