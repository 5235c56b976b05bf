"""`Step`: a unit of work with typed inputs, its own rollback, and what it declares about sharing.

A step is run by a reactor, or by itself through `call`; never by making an instance, which would go past its declared
holds. `bind` is the one door by which the runtime (and `testing.bare`) builds one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from reactor_coord.declare.attribute_names import STEP_OPTIONS
from reactor_coord.declare.attributes import check_step_attributes
from reactor_coord.declare.body import HOOKS, BodyType
from reactor_coord.declare.context import Context, Verdicts
from reactor_coord.declare.coordination import NO_COORDINATION, Declaration, check_keys, coordination_of
from reactor_coord.declare.decorators import check_in_time, marked, merged
from reactor_coord.declare.entrance import entrance
from reactor_coord.declare.inputs import UNRESOLVED, InputSchema, schema_of
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.shown import shown
from reactor_coord.errors import DefinitionError


class Step(Verdicts, metaclass=BodyType):
    """Subclass it, declare inputs, write `run`. See the guide for `guard`, `compensate`, `undo`, `where`.

    `retry`: a `Retry`, for real failures. `atomic`: the ORM writes of the body, and of each cleanup, commit together with the
    step's checkpoint.
    `allow_in_atomic`: `call` may be used, coordinated, inside an open transaction.
    `coordination` (read only): what the `with_*` decorators declared, by primitive.
    """

    retry: ClassVar[Retry | None] = None
    atomic: ClassVar[bool] = False
    allow_in_atomic: ClassVar[bool] = False

    inputs_schema: ClassVar[InputSchema] = InputSchema(owner="Step", fields=MappingProxyType({}))
    coordination: ClassVar[Mapping[str, Declaration]] = NO_COORDINATION
    declared_coordination: ClassVar[Mapping[str, Declaration]] = NO_COORDINATION
    _used_by: ClassVar[str] = ""
    has_run: ClassVar[bool] = False
    has_guard: ClassVar[bool] = False
    has_where: ClassVar[bool] = False
    has_compensate: ClassVar[bool] = False
    has_undo: ClassVar[bool] = False

    context: Context
    arguments: Mapping[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise DefinitionError(
            f"{name}(...) would run past what the step declares. Use {name}.call(...) to run it coordinated, "
            f"step({name}, ...) inside a reactor, or reactor_coord.testing.bare({name}, ...) in a unit test."
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_step_attributes(cls, Step, _OWN)
        cls.declared_coordination = NO_COORDINATION
        cls.inputs_schema = schema_of(cls, cls.__name__, _RESERVED)
        for method, arguments in _METHODS.items():
            overridden = getattr(cls, method) is not getattr(Step, method)
            setattr(cls, f"has_{method}", overridden)
            if overridden:
                _check_unmarked(cls.__name__, method, getattr(cls, method))
                check_method(f"{cls.__name__}.{method}", getattr(cls, method), 1 + len(arguments), arguments)
        _check_attributes(cls)
        cls._settle_coordination()

    @classmethod
    def coordinate(cls, declaration: Declaration) -> None:
        """Take a declaration from a `with_*` decorator."""
        if cls is Step:
            raise DefinitionError(f"with_{declaration.primitive} goes on a subclass of Step, not on Step itself.")
        check_in_time(cls, declaration, vars(cls).get("_used_by", ""))
        cls.declared_coordination = merged(cls.__name__, cls.declared_coordination, declaration)
        cls._settle_coordination()

    @classmethod
    def _settle_coordination(cls) -> None:
        cls.coordination = inherited_coordination(cls)
        check_keys(cls.__name__, cls.coordination, cls.inputs_schema.types)

    @classmethod
    def bind(
        cls, arguments: Mapping[str, Any], context: Any, unresolved: Mapping[str, Exception] | None = None
    ) -> Self:
        """An instance that reads these arguments, taken as they are (not validated), with nothing held for it.

        An input in `unresolved` raises its error when it is read.
        """
        instance = cls.__new__(cls)
        fields = cls.inputs_schema.fields
        instance.__dict__.update((name, value) for name, value in arguments.items() if name in fields)
        instance.__dict__.update(arguments=MappingProxyType(dict(arguments)), context=context)
        instance.__dict__[UNRESOLVED] = unresolved or {}
        return instance

    @classmethod
    def call(cls, /, context: Context | None = None, **inputs: Any) -> Any:
        """Run this step on its own and return its value: guarded, coordinated, released, like inside a reactor.

        Without `context` it is its own owner: it waits `wait` seconds for a busy key, then raises the contention error.
        With `context=self.context` it is part of that execution and enters what that one holds.
        """
        return entrance().call_step(cls, inputs, context)

    def run(self) -> Any:
        """The work. A plain return value is a success; see `results` for the others."""
        raise NotImplementedError

    def guard(self) -> Any:
        """Runs after validation and before anything is taken: decides whether `run` follows.

        It passes by returning nothing or True, or by `self.succeed()`. `self.fail(...)`, `self.skip(...)` and `self.halt(...)`,
        or the `Failure`, `Skipped` or `Halt` returned, end the step so; such a step is neither compensated nor undone. Any
        other answer fails the step.
        """

    def where(self) -> Any:
        """False: the step is skipped, takes nothing. Reads the inputs like any method; a `where=` on `step(...)` wins over it."""
        return True

    def compensate(self, error: Any, /) -> Any:
        """This step itself failed with `error`: clean up what it half did."""

    def undo(self, result: Any, /) -> Any:
        """This step succeeded with `result`, a later one failed: take it back."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


_METHODS: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "guard": (),
    "where": (),
    "compensate": ("error",),
    "undo": ("result",),
}

# Names of a Step that are neither options nor hooks.
_OWN = frozenset(name for name in dir(Step) if not name.startswith("_")) - STEP_OPTIONS - HOOKS | {
    "context",
    "arguments",
}

# `after` would be the option of `step()`, never the input.
_RESERVED = frozenset(name for name in dir(Step) if not name.startswith("_")) | {"context", "arguments", "after"}


def inherited_coordination(cls: type[Any]) -> Mapping[str, Declaration]:
    """What holds for a class: its own declarations over those of its bases."""
    declarations = [
        declaration
        for base in reversed(cls.__mro__)
        for declaration in vars(base).get("declared_coordination", NO_COORDINATION).values()
    ]
    return coordination_of(declarations)


def _check_unmarked(name: str, method: str, function: Callable[..., Any]) -> None:
    """A `with_*` above a method would be read by nobody: the body would run unprotected."""
    for primitive in marked(function):
        raise DefinitionError(
            f"with_{primitive} was put on {name}.{method}, where nothing reads it; put it above the class {name}."
        )


def check_method(place: str, function: Callable[..., Any], given: int, names: tuple[str, ...]) -> None:
    """A method must be callable with what it will be given: better told now than in the middle of a rollback."""
    check_body(place, function)
    try:
        inspect.signature(function).bind(*[None] * given)
    except TypeError:
        expected = ", ".join(("self", *names))
        raise DefinitionError(
            f"{place}{inspect.signature(function)}: it is called as ({expected}); write def {place.rpartition('.')[2]}"
            f"({expected}). Values it needs are the step's inputs, read as self.<input>."
        ) from None


def check_body(place: str, function: Callable[..., Any]) -> None:
    """Refuse bodies that would only hand back a coroutine or a generator, done nothing."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(
            f"{place} is async; a body is a plain function. Await inside it with asgiref.sync.async_to_sync(...)."
        )
    if inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{place} has a yield in it, so calling it would do nothing; return a list instead.")


def _check_attributes(cls: type[Step]) -> None:
    name = cls.__name__
    if "__init__" in vars(cls) or "__new__" in vars(cls):
        raise DefinitionError(
            f"{name} defines __init__, which is never called; declare inputs with Input(...) instead."
        )
    if cls.retry is not None and not isinstance(cls.retry, Retry):
        raise DefinitionError(f"{name}.retry = {shown(cls.retry)}: must be a Retry, as in Retry(max_attempts=3).")
    if not isinstance(cls.atomic, bool):
        raise DefinitionError(f"{name}.atomic = {shown(cls.atomic)}: must be True or False.")
