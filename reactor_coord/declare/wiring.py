"""From what was written to where every argument comes from: wiring by name, and the checks of a node's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from reactor_coord.declare.coordination import Declaration, has_callable_key, names_read
from reactor_coord.declare.inline import NOTHING, SUBJECTS, Body, body_of, own_arguments
from reactor_coord.declare.inputs import Input, InputSchema
from reactor_coord.declare.nodes import OPTIONS, StepNode
from reactor_coord.declare.references import Constant, InputRef, Reference
from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import closest, did_you_mean
from reactor_coord.errors import DefinitionError

# Options of one word that an author may try on another: told apart from misspelt inputs.
_OPTIONS = frozenset({"atomic"}).union(*OPTIONS.values())


def wire_class(
    place: str, node: StepNode, schema: InputSchema, reactor: InputSchema, where: frozenset[str]
) -> dict[str, Reference]:
    """Arguments for the declared inputs of a step or reactor class, plus those that only `where` reads."""
    found = dict(node.arguments)
    for name in found:
        if name not in schema.fields and name not in where:
            raise _unknown(place, node, name, schema)
    for name, field in schema.fields.items():
        if name in found:
            continue
        if name in reactor.fields:
            found[name] = InputRef(name)
        elif field.required:
            target = getattr(node.target, "__name__", "")
            raise DefinitionError(
                f"{place}: nothing wires the input {name!r} of {target}. Either pass it, as in "
                f"{node.word}({target}, {name}=...), or declare {name} = Input({field.type_label}) on {reactor.owner}."
            )
    return found


def wire_inline(
    place: str,
    node: StepNode,
    reactor: InputSchema,
    where: frozenset[str],
    coordination: Mapping[str, Declaration],
) -> dict[str, Reference]:
    """Arguments for the parameters of an inline step's functions, plus those that only `where` or a key reads."""
    found = dict(node.arguments)
    own = own_arguments(found, node.bodies)
    for role, body in node.bodies.items():
        subject = body.subject(role, own)
        _check_subject(place, role, subject, own, reactor)
        for name, default in body.defaults.items():
            if name == subject or name in found:
                continue
            found[name] = _by_name(place, node, role, name, default, reactor)
    _check_read(place, node, found, where, coordination)
    return found


def _check_subject(place: str, role: str, subject: str | None, own: frozenset[str], reactor: InputSchema) -> None:
    """Refuse a parameter that could be two things: what a rollback gets first, or an argument."""
    if subject is None:
        return
    usual = SUBJECTS[role]
    if subject in own:
        raise DefinitionError(
            f"{place}: {subject!r} is an argument of the step, and in its {role} the parameter of that name is "
            f"the {usual}. Rename the argument."
        )
    if subject != usual and subject in reactor.fields:
        raise DefinitionError(
            f"{place}: in its {role}, {subject!r} could be the {usual} or the input of {reactor.owner}. Name the first "
            f"parameter {usual!r}, or pass {subject}={subject} to the step."
        )


def _by_name(place: str, node: StepNode, role: str, name: str, default: Any, reactor: InputSchema) -> Reference:
    if name in reactor.fields:
        return InputRef(name)
    if default is not NOTHING:
        return Constant(default)
    function = node.bodies[role].name
    meant = closest(name, {*node.arguments, *reactor.fields})
    raise DefinitionError(
        f"{place}: nothing wires the parameter {name!r} of its {role} function {function}. Either pass it, as in "
        f"@step({name}=...), or declare {name} = Input(...) on {reactor.owner}.{meant}"
    )


def _check_read(
    place: str,
    node: StepNode,
    found: Mapping[str, Reference],
    where: frozenset[str],
    coordination: Mapping[str, Declaration],
) -> None:
    """Refuse arguments that nothing reads."""
    bodies = node.bodies.values()
    if any(body.takes_all for body in bodies) or has_callable_key(coordination):
        return
    named = {name for body in bodies for name in body.defaults}
    read = named | where | names_read(coordination)
    for name in found:
        if name not in read:
            function = node.bodies["run"].name
            raise DefinitionError(f"{place}: {function} has no parameter {name!r}.{_offer(name, named, node)}")


def wire_where(
    place: str, node: StepNode, reactor: InputSchema, known: Iterable[str]
) -> tuple[frozenset[str], dict[str, Reference]]:
    """The arguments that `where` names, and those of them that come from the reactor's inputs by name."""
    if node.where is None:
        return frozenset(), {}
    if not callable(node.where) or isinstance(node.where, Reference):
        raise DefinitionError(
            f"{place}: where={shown(node.where)} has its value while the class is being built; "
            "write a function of the step's arguments, as in where=lambda amount: amount > 0."
        )
    body = _where_body(place, node)
    names = frozenset(node.arguments) | frozenset(known)
    wired: dict[str, Reference] = {}
    for name, default in body.defaults.items():
        if name in names:
            continue
        if name in reactor.fields:
            wired[name] = InputRef(name)
        elif default is NOTHING:
            raise DefinitionError(
                f"{place}: where reads {name!r}, which is neither an argument of the step nor an input of "
                f"{reactor.owner}. Pass it, as in {node.word}(..., {name}=...).{closest(name, names | set(reactor.fields))}"
            )
    if body.takes_all:
        return names | frozenset(wired), wired
    return frozenset(body.defaults) & (names | frozenset(wired)), wired


def _where_body(place: str, node: StepNode) -> Body:
    where = node.where
    body = body_of(f"{place}: where", where if not inspect.isclass(where) else _refuse_class(place, where))
    if body.takes_context:
        raise DefinitionError(
            f"{place}: where gets the step's arguments and no context. What needs the context goes into a guard, or into a "
            f"method where(self) of the step's class."
        )
    return body


def _refuse_class(place: str, where: type[Any]) -> Any:
    raise DefinitionError(f"{place}: where={where.__name__} is a class; give a function of the step's arguments.")


def check_roots(place: str, argument: str, ref: Reference, cls: type[Any], schema: InputSchema, elements: bool) -> None:
    """Every input and step that a reference is read from must be this reactor's own (or inherited)."""
    for root in ref.roots():
        if root.root_kind == "element" and not elements:
            raise DefinitionError(f"{place}: {argument}={ref!r}: element() means something only inside map_each(...).")
        if isinstance(root, Input):
            _check_input(place, argument, root, cls, schema)
        if isinstance(root, StepNode):
            check_node(place, argument, root, cls)


def _check_input(place: str, argument: str, root: Input[Any], cls: type[Any], schema: InputSchema) -> None:
    if root.owner is None:
        raise DefinitionError(
            f"{place}: {argument} is given an Input of its own; declare it on {cls.__name__}, as in "
            f"{argument} = {root!r}, and pass that name."
        )
    if root.owner not in cls.__mro__ or root.name not in schema.fields:
        raise DefinitionError(
            f"{place}: {argument}={root.name} is an input of {root.owner.__name__}, which {cls.__name__} does not have. "
            f"Declare it on {cls.__name__}.{did_you_mean(root.name, schema.fields)}"
        )


def check_node(place: str, option: str, node: StepNode, cls: type[Any]) -> None:
    """A step that is referred to must stand in this reactor's body or in that of a base."""
    if node.owner is None:
        raise DefinitionError(
            f"{place}: {option} is given {node!r}, which is no step of {cls.__name__}; "
            "put it into the class body under a name of its own first."
        )
    if node.owner not in cls.__mro__:
        raise DefinitionError(
            f"{place}: {option}={node!r} is a step of {node.owner.__name__}, not of {cls.__name__}; "
            f"use compose({node.owner.__name__}, ...) to read from another reactor."
        )


def _unknown(place: str, node: StepNode, name: str, schema: InputSchema) -> DefinitionError:
    target = getattr(node.target, "__name__", None)
    if target is None:
        meant = closest(name, _options_of(node))
        return DefinitionError(f"{place}: {node.word} takes no argument {name!r} unless where= reads it.{meant}")
    if name in _OPTIONS:
        hint = (
            f"declare it on {target} instead" if name in ("retry", "atomic") else "it belongs to another kind of step"
        )
        return DefinitionError(f"{place}: {node.word} has no option {name!r}, and {target} no such input; {hint}.")
    return DefinitionError(f"{place}: {target} has no input {name!r}.{_offer(name, schema.fields, node)}")


def _options_of(node: StepNode) -> frozenset[str]:
    return OPTIONS[node.word] | {"atomic"} if node.is_inline else OPTIONS[node.word]


def _offer(name: str, known: Iterable[str], node: StepNode) -> str:
    """What a keyword that is neither an argument nor an option was meant to be; else the arguments there are."""
    return closest(name, {*known, *_options_of(node)}) or did_you_mean(name, known) or " It takes none."
