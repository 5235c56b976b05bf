"""What a reactor compiles to: frozen, verified, free of the class that declared it. All that runs reads this, not the class.

A definition is made once, at import, by `compiler`; nothing changes it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.coordination import Declaration
from reactor_coord.declare.inputs import InputSchema
from reactor_coord.declare.references import Reference
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.errors import DefinitionError

if TYPE_CHECKING:
    from reactor_coord.declare.reactor import Reactor
    from reactor_coord.declare.step import Step

KINDS = ("step", "compose", "map", "interrupt", "async_step", "async_reactor")


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One node of the graph.

    `step_class` or `reactor_class` is what it runs (neither for an interrupt). `schema` validates the arguments (`None`:
    an inline step, which takes them as they come). `after` is ordering alone, `depends_on` that and the steps its
    arguments are read from. `where` is called with the arguments in `where_names`, by keyword. `coordination` and `retry`
    are what holds in the end: the node's own, else the class's. `options` is what the kind adds (see `nodes`). `renamed_from` is
    the name under which executions that are under way may have run it.
    """

    name: str
    index: int
    kind: str
    step_class: type[Step] | None
    reactor_class: type[Reactor] | None
    arguments: Mapping[str, Reference]
    schema: InputSchema | None
    after: frozenset[str]
    depends_on: frozenset[str]
    where: Callable[..., Any] | None
    where_names: frozenset[str]
    retry: Retry | None
    coordination: Mapping[str, Declaration]
    redacted: frozenset[str]
    inline: bool
    options: Mapping[str, Any]
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True)
class ReactorDefinition:
    """A reactor. `name` is its dotted path, `label` its class name; `steps` is in definition order.

    `returns` is the reference whose value the reactor returns (the last step's by default; `None` without steps).
    `fingerprint` changes with what an execution under way depends on: inputs, steps, their kinds, targets, arguments and
    order; not with options, keys or bodies, which may change under it.
    """

    name: str
    label: str
    doc: str
    cls: type[Reactor] = field(repr=False)
    schema: InputSchema
    steps: Mapping[str, StepDefinition]
    returns: Reference | None
    coordination: Mapping[str, Declaration]
    queue: str | None
    on_crash: str
    allow_in_atomic: bool
    background_after: str | None
    background_before: str | None
    fingerprint: str

    def functions(self) -> Iterator[Any]:
        """The functions of its author that are called beside the steps' own: of references, conditions, keys and options."""
        for declarations in (self.coordination, *(step.coordination for step in self.steps.values())):
            yield from (key.template for declaration in declarations.values() for key in declaration.keys)
        for step in self.steps.values():
            yield from (step.where, step.options.get("collect"))
        for ref in self._references():
            yield from ref.functions()

    def _references(self) -> Iterator[Reference]:
        if self.returns is not None:
            yield self.returns
        for step in self.steps.values():
            yield from step.arguments.values()
            yield from (value for value in step.options.values() if isinstance(value, Reference))

    def step(self, name: str) -> StepDefinition:
        """The step of that name, or `DefinitionError` with the names there are."""
        try:
            return self.steps[name]
        except KeyError:
            raise DefinitionError(f"{self.label} has no step {name!r}.{did_you_mean(name, self.steps)}") from None
