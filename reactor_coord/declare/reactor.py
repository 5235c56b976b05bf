"""`Reactor`: a workflow as a class. Its body names inputs and steps; making the class compiles and verifies them.

Running is the runtime's, reached through `entrance`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from reactor_coord.declare import options as check
from reactor_coord.declare.attribute_names import REACTOR_OPTIONS
from reactor_coord.declare.attributes import check_forgotten_steps, check_reactor_attributes
from reactor_coord.declare.body import BodyType
from reactor_coord.declare.compiler import compile_reactor
from reactor_coord.declare.coordination import NO_COORDINATION, Declaration, check_keys
from reactor_coord.declare.decorators import check_in_time, merged
from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.declare.entrance import RunOptions, entrance
from reactor_coord.declare.keywords import checked_call
from reactor_coord.declare.references import Reference
from reactor_coord.declare.registry import register
from reactor_coord.declare.step import inherited_coordination
from reactor_coord.errors import DefinitionError, NotRunnable

if TYPE_CHECKING:
    from reactor_coord.runtime.outcome import ExecutionHandle, Outcome


class Reactor(metaclass=BodyType):
    """Subclass it; declare inputs and steps in the body.

    `returns`: the step or reference whose value it returns (default: the last step). `queue`: Celery queue of its
    executions. `on_crash`: what becomes of an in-process run whose process died, "abort" (left to the operator) or
    "resume". `allow_in_atomic`: it may be run, coordinated, inside an open transaction. `background_after`,
    `background_before`: the step from which on (or up to which not) it goes on in a worker. A subclass has its base's
    inputs and steps; a step declared again replaces the inherited one, `name = None` takes it away. Without steps it is
    an abstract base, which does not run.
    """

    returns: ClassVar[Any] = None
    queue: ClassVar[str | None] = None
    on_crash: ClassVar[str] = "abort"
    allow_in_atomic: ClassVar[bool] = False
    background_after: ClassVar[Any] = None
    background_before: ClassVar[Any] = None

    definition: ClassVar[ReactorDefinition]
    coordination: ClassVar[Mapping[str, Declaration]] = NO_COORDINATION
    declared_coordination: ClassVar[Mapping[str, Declaration]] = NO_COORDINATION

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise DefinitionError(f"{name} is not instantiated; use {name}.run(...) or {name}.enqueue(...).")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_reactor_attributes(cls, Reactor, _OWN)
        cls.declared_coordination = NO_COORDINATION
        definition = compile_reactor(cls, _RESERVED)
        check_forgotten_steps(cls, Reactor, (*definition.schema.fields, *definition.steps), definition.functions())
        cls._settle(definition)

    @classmethod
    def coordinate(cls, declaration: Declaration) -> None:
        """Take a declaration from a `with_*` decorator."""
        if cls is Reactor:
            raise DefinitionError(f"with_{declaration.primitive} goes on a subclass of Reactor, not on Reactor itself.")
        check_in_time(cls, declaration)
        cls.declared_coordination = merged(cls.__name__, cls.declared_coordination, declaration)
        coordination = inherited_coordination(cls)
        check_keys(cls.__name__, coordination, cls.definition.schema.types)
        cls._settle(dataclasses.replace(cls.definition, coordination=coordination))

    @classmethod
    def _settle(cls, definition: ReactorDefinition) -> None:
        cls.definition = definition
        cls.coordination = definition.coordination
        if definition.steps:
            register(definition)

    @classmethod
    def run(cls, /, **inputs: Any) -> Outcome:
        """Run it here, now, and return its outcome. Raises `InputValidationError`; a failing step does not raise.

        A busy key is waited for as its `wait` says, then its step fails with the contention error.
        """
        return Prepared(cls, RunOptions()).run(**inputs)

    @classmethod
    def enqueue(cls, /, **inputs: Any) -> ExecutionHandle:
        """Run it in a Celery worker, dispatched after the caller's transaction commits. Raises `InputValidationError`."""
        return Prepared(cls, RunOptions()).enqueue(**inputs)

    @classmethod
    @checked_call
    def options(
        cls,
        /,
        *,
        idempotency_key: str | None = None,
        queue: str | None = None,
        countdown: Any = 0,
        tags: Mapping[str, Any] | None = None,
        allow_in_atomic: bool = False,
        independent: bool = False,
    ) -> Prepared:
        """The same reactor with options: `Payment.options(tags={"customer": 5}).enqueue(...)`.

        `idempotency_key` (at most 200 characters): the first execution with it is the only one; a second call returns
        it. `queue`: instead of the reactor's. `countdown`: seconds or a `timedelta` before it may start (`enqueue`).
        `tags`: a mapping with text keys, stored and searchable. `independent=True`: run inside a body, it relies on nothing
        that the body's execution holds, and contends with it.
        """
        place = f"{cls.__name__}.options"
        check.optional_text(place, "idempotency_key", idempotency_key, longest=200)
        check.optional_text(place, "queue", queue, longest=200)
        check.mapping_of_texts(place, "tags", tags)
        return Prepared(
            cls,
            RunOptions(
                idempotency_key=idempotency_key,
                queue=queue,
                countdown=check.seconds(place, "countdown", countdown),
                tags=MappingProxyType(dict(tags or {})),
                allow_in_atomic=check.flag(place, "allow_in_atomic", allow_in_atomic),
                independent=check.flag(place, "independent", independent),
            ),
        )

    @classmethod
    @checked_call
    def resume(
        cls, correlation_id: Any, /, *, step: str | Reference | None = None, payload: Any = None
    ) -> ExecutionHandle:
        """Answer an interrupt of the execution that `correlation_id` names. `step` may be left out when only one waits."""
        name = None if step is None else str(getattr(step, "name", step))
        if name is not None:
            cls.definition.step(name)
        return entrance().resume(cls.definition, str(correlation_id), name, payload)


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A reactor with the options of one run."""

    reactor: type[Reactor]
    run_options: RunOptions

    def run(self, /, **inputs: Any) -> Outcome:
        """As `Reactor.run`. Raises `NotRunnable` for options that only an enqueued execution can follow."""
        if self.run_options.countdown:
            seconds = f"{self.run_options.countdown:g}"
            raise NotRunnable(
                f"{self.reactor.__name__}.options(countdown={seconds}).run(): run() begins here and now. Use enqueue(), which "
                f"begins in a worker {seconds} s from now, or leave countdown out."
            )
        return entrance().run(_runnable(self.reactor, "run"), inputs, self.run_options)

    def enqueue(self, /, **inputs: Any) -> ExecutionHandle:
        """As `Reactor.enqueue`."""
        return entrance().enqueue(_runnable(self.reactor, "enqueue"), inputs, self.run_options)


def _runnable(cls: type[Reactor], verb: str) -> ReactorDefinition:
    definition: ReactorDefinition | None = getattr(cls, "definition", None)
    if definition is None or not definition.steps:
        raise NotRunnable(f"{cls.__name__}.{verb}(): {cls.__name__} has no steps; {verb} a subclass that has some.")
    return definition


# Names of a Reactor that are no options.
_OWN = (frozenset(name for name in dir(Reactor) if not name.startswith("_")) | {"definition"}) - REACTOR_OPTIONS

_RESERVED = frozenset(name for name in dir(Reactor) if not name.startswith("_")) | {"definition", "after"}
