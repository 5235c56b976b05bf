"""A reactor class compiled to its frozen definition, with everything verified that can be verified at import.

The place named in an error is `step 'charge' of Payment` or `Payment`; order, wiring, keys and options are checked here, so
that what runs later need not doubt a definition.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.coordination import Declaration, check_keys, coordination_of
from reactor_coord.declare.decorators import Coordination, marked
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.graph import check_acyclic
from reactor_coord.declare.inline import inline_class
from reactor_coord.declare.inputs import REFERRING, InputSchema, schema_of
from reactor_coord.declare.inside import check_inside
from reactor_coord.declare.nodes import StepNode, is_reactor
from reactor_coord.declare.references import InputRef, LastStepRef, Reference, StepRef, as_reference
from reactor_coord.declare.shown import shown
from reactor_coord.declare.step import Step, inherited_coordination
from reactor_coord.declare.suggest import did_you_mean, near_miss
from reactor_coord.declare.wiring import check_node, check_roots, wire_class, wire_inline, wire_where
from reactor_coord.errors import DefinitionError

if TYPE_CHECKING:
    from reactor_coord.declare.reactor import Reactor

_STEP_NAME = re.compile(r"[^\W\d][\w-]{0,99}\Z")
_ON_CRASH = ("abort", "resume")


def compile_reactor(cls: type[Reactor], reserved: frozenset[str]) -> ReactorDefinition:
    """The definition of a reactor class. Raises `DefinitionError` for whatever cannot be right in it."""
    label = cls.__name__
    schema = schema_of(cls, label, reserved, is_fixed=True)
    coordination = inherited_coordination(cls)
    check_keys(label, coordination, schema.types)
    steps = _steps(cls, schema, reserved)
    name = f"{cls.__module__}.{cls.__qualname__}"
    returns = _returns(cls, schema, steps)
    return ReactorDefinition(
        name=name,
        label=label,
        doc=(cls.__doc__ or "").strip(),
        cls=cls,
        schema=schema,
        steps=MappingProxyType(steps),
        returns=returns,
        coordination=coordination,
        queue=_queue(cls),
        on_crash=_on_crash(cls),
        allow_in_atomic=_flag(cls, "allow_in_atomic"),
        background_after=_step_named(cls, "background_after", steps),
        background_before=_step_named(cls, "background_before", steps),
        fingerprint=_fingerprint(name, schema, steps, returns),
    )


def _steps(cls: type[Reactor], schema: InputSchema, reserved: frozenset[str]) -> dict[str, StepDefinition]:
    nodes = _nodes(cls, reserved)
    steps = {name: _step(cls, schema, name, index, node) for index, (name, node) in enumerate(nodes.items())}
    for definition in steps.values():
        for name in sorted(definition.depends_on - steps.keys()):
            raise DefinitionError(
                f"{_place(cls, definition.name)}: it depends on {name!r}, and {cls.__name__} has no such step."
                f"{did_you_mean(name, steps)}"
            )
    _check_renamed(cls, steps)
    check_acyclic(cls.__name__, {name: definition.depends_on for name, definition in steps.items()})
    return steps


def _check_renamed(cls: type[Reactor], steps: Mapping[str, StepDefinition]) -> None:
    """One step was called so, and none is now: else what ran under the name would count for two."""
    former: dict[str, str] = {}
    for name, definition in steps.items():
        before = definition.renamed_from
        if before is None:
            continue
        if before in steps:
            raise DefinitionError(
                f"{_place(cls, name)}: renamed_from={before!r}, and {cls.__name__} has a step of that name."
            )
        if before in former:
            raise DefinitionError(f"{_place(cls, name)}: renamed_from={before!r}, which {former[before]!r} says, too.")
        former[before] = name


def _nodes(cls: type[Reactor], reserved: frozenset[str]) -> dict[str, StepNode]:
    """The class's steps by name, inherited ones first; declared again one keeps its place, `name = None` takes it away."""
    by_attribute: dict[str, StepNode] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            if attribute in REFERRING:
                continue
            if isinstance(value, StepNode):
                _check_attribute(cls, attribute, value, reserved)
                by_attribute[attribute] = value
            elif attribute in by_attribute:
                _check_taken_away(cls, attribute, value, by_attribute[attribute])
                del by_attribute[attribute]
            else:
                _check_misplaced(cls, attribute, value)
    nodes: dict[str, StepNode] = {}
    for attribute, node in by_attribute.items():
        if node.name in nodes:
            raise DefinitionError(f"{cls.__name__}: two steps are named {node.name!r}; the second is {attribute!r}.")
        nodes[str(node.name)] = node
    return nodes


def _check_attribute(cls: type[Reactor], attribute: str, node: StepNode, reserved: frozenset[str]) -> None:
    label = cls.__name__
    if node.attribute != attribute:
        raise DefinitionError(
            f"{label}: one step stands under two names, {node.attribute!r} and {attribute!r}; write a step() for each."
            f"{_meant(attribute)}"
        )
    if node.owner not in cls.__mro__:
        raise DefinitionError(
            f"{_place(cls, attribute)} is the very step of {getattr(node.owner, '__name__', 'another class')}; "
            "write a step() of its own for each reactor."
        )
    if node.given_name is not None and not (isinstance(node.given_name, str) and _STEP_NAME.match(node.given_name)):
        raise DefinitionError(
            f"{_place(cls, attribute)}: name={node.given_name!r} must be a text of letters, digits, '_' and '-', "
            "beginning with a letter, of at most 100 characters."
        )
    if isinstance(node.given_name, str) and "name" in getattr(
        getattr(node.target, "inputs_schema", None), "fields", ()
    ):
        raise DefinitionError(
            f"{_place(cls, attribute)}: name={node.given_name!r} could be the step's name or the input 'name' of "
            f'{node.target.__name__}; pass the input as arguments={{"name": ...}}.'  # type: ignore[union-attr]
        )
    if attribute in reserved:
        raise DefinitionError(
            f"{label}: a step cannot be named {attribute!r}: that name is taken by Reactor itself. Choose another; "
            "name= gives a step a name apart from its attribute."
        )


def _check_taken_away(cls: type[Reactor], attribute: str, value: Any, node: StepNode) -> None:
    """Only `None` takes an inherited step away: a function over it is a forgotten `@step`."""
    if value is not None:
        base = getattr(node.owner, "__name__", "its base")
        raise DefinitionError(
            f"{cls.__name__}.{attribute} = {shown(value)} stands over the step {node.name!r} of {base}, and would take it away. "
            f"Write a step there, as in @step(...), or {attribute} = None to go without; or choose another name."
        )


def _meant(attribute: str) -> str:
    meant = near_miss(attribute, REFERRING)
    return f" Did you mean {meant!r} by {attribute!r}?" if meant else ""


def _check_misplaced(cls: type[Reactor], attribute: str, value: Any) -> None:
    if isinstance(value, Coordination):
        word = f"with_{value.declaration.primitive}"
        raise DefinitionError(
            f"{cls.__name__}.{attribute} is a {word}(...) by itself; put it above a step's function or class, or into "
            f'step(..., coordination=[{word}(...)]). As a decorator it needs its key: @{word}("...").'
        )
    if isinstance(value, Callable) and not isinstance(value, type) and marked(value):  # type: ignore[arg-type]
        raise DefinitionError(f"{cls.__name__}.{attribute} has a with_* and is no step; put @step(...) above it.")
    if isinstance(value, type) and (issubclass(value, Step) or is_reactor(value)) and not _is_nested(cls, value):
        verb = "compose" if is_reactor(value) else "step"
        raise DefinitionError(
            f"{cls.__name__}.{attribute} is the class {value.__name__} and no step of it; write {attribute} = "
            f"{verb}({value.__name__}, ...)."
        )


def _is_nested(cls: type[Reactor], value: type[Any]) -> bool:
    """A class written in the body of the reactor, to be used in a `step` below it."""
    return any(value.__qualname__ == f"{base.__qualname__}.{value.__name__}" for base in cls.__mro__)


def _step(cls: type[Reactor], schema: InputSchema, name: str, index: int, node: StepNode) -> StepDefinition:
    place = _place(cls, name)
    coordination = _coordination(place, cls, node)
    check_inside(place, node.kind, node.word, node.target, cls.__name__)
    target_schema = _target_schema(node)
    known = target_schema.fields if target_schema is not None else _parameters(node)
    where_names, wired = wire_where(place, node, schema, known)
    arguments = _arguments(place, cls, schema, node, target_schema, where_names, coordination, wired)
    after = _after(place, cls, node)
    _check_placeholders(place, node, schema, target_schema, arguments)
    options = dict(node.options)
    depends_on = after.union(*(ref.steps() for ref in (*arguments.values(), *_references(options))))
    step_class = _step_class(cls, name, node, coordination)
    return StepDefinition(
        name=name,
        index=index,
        kind=node.kind,
        step_class=step_class,
        reactor_class=node.target if is_reactor(node.target) else None,
        arguments=MappingProxyType(arguments),
        schema=target_schema,
        after=after,
        depends_on=depends_on,
        where=node.where,
        where_names=where_names,
        retry=node.retry or getattr(step_class, "retry", None),
        coordination=coordination,
        redacted=_redacted(node, arguments, schema, target_schema),
        inline=node.is_inline,
        options=MappingProxyType(options),
        renamed_from=node.renamed_from,
    )


def _target_schema(node: StepNode) -> InputSchema | None:
    if node.target is None:
        return None
    found: InputSchema = node.target.definition.schema if is_reactor(node.target) else node.target.inputs_schema
    return found


def _parameters(node: StepNode) -> Iterable[str]:
    return node.bodies["run"].defaults if node.is_inline else ()


def _arguments(
    place: str,
    cls: type[Reactor],
    schema: InputSchema,
    node: StepNode,
    target_schema: InputSchema | None,
    where: frozenset[str],
    coordination: Mapping[str, Declaration],
    wired: Mapping[str, Reference],
) -> dict[str, Reference]:
    if node.is_inline:
        arguments = wire_inline(place, node, schema, where, coordination)
    else:
        arguments = wire_class(place, node, target_schema or InputSchema("", MappingProxyType({})), schema, where)
    arguments = {**arguments, **{name: ref for name, ref in wired.items() if name not in arguments}}
    for name, ref in arguments.items():
        check_roots(place, name, ref, cls, schema, elements=node.kind == "map")
    for name, value in node.options.items():
        if isinstance(value, Reference):
            check_roots(place, name, value, cls, schema, elements=False)
        if isinstance(value, Reference) and name == "correlation_id":
            _check_shown(
                f"{place}: correlation_id", value, schema, "it names the question, and is shown; pass another text"
            )
    return arguments


def _after(place: str, cls: type[Reactor], node: StepNode) -> frozenset[str]:
    given = node.after
    items = (given,) if isinstance(given, str | Reference) or not isinstance(given, Iterable) else tuple(given)
    return frozenset(_after_name(place, cls, item) for item in items)


def _after_name(place: str, cls: type[Reactor], item: Any) -> str:
    if isinstance(item, StepNode):
        check_node(place, "after", item, cls)
        return str(item.name)
    if isinstance(item, str):
        return item
    hint = " (a reference to its value is not needed here)" if isinstance(item, Reference) else ""
    raise DefinitionError(
        f"{place}: after={shown(item)}: after takes a step of {cls.__name__}, or a list of them{hint}."
    )


def _coordination(place: str, cls: type[Reactor], node: StepNode) -> Mapping[str, Declaration]:
    if node.kind == "interrupt" and node.declared:
        words = ", ".join(f"with_{primitive}" for primitive in node.declared)
        raise DefinitionError(
            f"{place}: an interrupt takes no {words}: it may wait for days and has no body to protect. "
            f"Declare it on the reactor instead, as a decorator above class {cls.__name__}."
        )
    inherited: Mapping[str, Declaration] = {}
    if node.target is not None and not is_reactor(node.target):
        inherited = node.target.coordination
        node.target._used_by = cls.__name__
    return coordination_of((*inherited.values(), *node.declared.values()))


def _check_placeholders(
    place: str,
    node: StepNode,
    schema: InputSchema,
    target_schema: InputSchema | None,
    arguments: Mapping[str, Reference],
) -> None:
    if target_schema is not None:
        return check_keys(place, node.declared, target_schema.types)
    types = {
        name: schema.types.get(ref.name, Any) if isinstance(ref, InputRef) else Any for name, ref in arguments.items()
    }
    check_keys(place, node.declared, types, "argument")


def _step_class(
    cls: type[Reactor],
    name: str,
    node: StepNode,
    coordination: Mapping[str, Declaration],
) -> type[Any] | None:
    if not node.is_inline:
        return None if node.target is None or is_reactor(node.target) else node.target
    return inline_class(name, cls, node.bodies, node.arguments, coordination, node.retry, atomic=bool(node.atomic))


def _redacted(
    node: StepNode, arguments: Mapping[str, Reference], schema: InputSchema, target_schema: InputSchema | None
) -> frozenset[str]:
    """What must not be shown: redacted inputs of the target, and whatever is read from a redacted input of the reactor."""
    over = node.options.get("over")
    elements_redacted = isinstance(over, Reference) and bool(over.inputs() & schema.redacted)
    derived = {
        name
        for name, ref in arguments.items()
        if ref.inputs() & schema.redacted or (elements_redacted and ref.has_element()) or _reads_a_secret_answer(ref)
    }
    return frozenset(derived) | (target_schema.redacted if target_schema else frozenset())


def _reads_a_secret_answer(ref: Reference) -> bool:
    """Whether it is read from an interrupt whose payload has redacted fields."""
    questions = (root for root in ref.roots() if isinstance(root, StepNode) and root.kind == "interrupt")
    return any(question.options["payload"].redacted for question in questions)


def _references(options: Mapping[str, Any]) -> list[Reference]:
    return [value for value in options.values() if isinstance(value, Reference)]


def _returns(cls: type[Reactor], schema: InputSchema, steps: Mapping[str, StepDefinition]) -> Reference | None:
    value = cls.returns
    if value is None:
        return LastStepRef(list(steps)[-1]) if steps else None
    ref = StepRef(value) if isinstance(value, str) else as_reference(value)
    place = f"{cls.__name__}.returns"
    check_roots(place, "returns", ref, cls, schema, elements=False)
    if not ref.roots():
        raise DefinitionError(
            f"{place} = {shown(value)}: must be a step, a reference into one, or an input of {cls.__name__}."
        )
    _check_known(place, cls, ref.steps(), steps)
    _check_shown(
        place, ref, schema, f"the value of an execution is shown; let a step of {cls.__name__} return what may be seen"
    )
    return ref


def _check_shown(place: str, ref: Reference, schema: InputSchema, why: str) -> None:
    """Refuse a redacted input where it would be shown as it is."""
    for name in sorted(ref.inputs() & schema.redacted):
        raise DefinitionError(f"{place} reads the redacted input {name!r}: {why}.")


def _step_named(cls: type[Reactor], option: str, steps: Mapping[str, StepDefinition]) -> str | None:
    value = getattr(cls, option)
    if value is None:
        return None
    place = f"{cls.__name__}.{option}"
    if isinstance(value, StepNode):
        check_node(place, option, value, cls)
        value = str(value.name)
    if not isinstance(value, str):
        raise DefinitionError(f"{place} = {shown(value)}: must be a step of {cls.__name__}.")
    _check_known(place, cls, {value}, steps)
    return value


def _check_known(place: str, cls: type[Reactor], names: Iterable[str], steps: Mapping[str, StepDefinition]) -> None:
    for name in names:
        if name not in steps:
            raise DefinitionError(f"{place}: {cls.__name__} has no step {name!r}.{did_you_mean(name, steps)}")


def _queue(cls: type[Reactor]) -> str | None:
    queue: Any = cls.queue
    if queue is not None and not (isinstance(queue, str) and queue):
        raise DefinitionError(
            f"{cls.__name__}.queue = {shown(cls.queue)}: must be the name of a Celery queue, or None."
        )
    return cls.queue


def _on_crash(cls: type[Reactor]) -> str:
    if cls.on_crash not in _ON_CRASH:
        words = " or ".join(map(repr, _ON_CRASH))
        raise DefinitionError(
            f"{cls.__name__}.on_crash = {shown(cls.on_crash)}: must be {words}.{did_you_mean(str(cls.on_crash), _ON_CRASH)}"
        )
    return cls.on_crash


def _flag(cls: type[Reactor], option: str) -> bool:
    value = getattr(cls, option)
    if not isinstance(value, bool):
        raise DefinitionError(f"{cls.__name__}.{option} = {shown(value)}: must be True or False.")
    return value


def _place(cls: type[Any], step: str) -> str:
    return f"step {step!r} of {cls.__name__}"


def _fingerprint(name: str, schema: InputSchema, steps: Mapping[str, StepDefinition], returns: Reference | None) -> str:
    """SHA-256 (first 16 hex digits) of what an execution under way relies on."""
    shape = {
        "name": name,
        "inputs": [(field.name, field.type_label, field.required) for field in schema.fields.values()],
        "steps": [_step_shape(step) for step in steps.values()],
        "returns": sorted(returns.steps() | returns.inputs()) if returns is not None else [],
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]


def _step_shape(step: StepDefinition) -> list[Any]:
    target = step.reactor_class or step.step_class
    arguments = [[name, sorted(ref.steps()), sorted(ref.inputs())] for name, ref in sorted(step.arguments.items())]
    return [
        step.name,
        step.kind,
        "" if step.inline or target is None else f"{target.__module__}.{target.__qualname__}",
        arguments,
        sorted(step.depends_on),
    ]
