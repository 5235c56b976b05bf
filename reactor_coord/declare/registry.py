"""Every reactor that was defined in this process, by its dotted name; found by label too, where that is unambiguous."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.errors import UnknownReactor

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition

_definitions: dict[str, ReactorDefinition] = {}
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+\Z")


def register(definition: ReactorDefinition) -> None:
    """Remember it. A class defined again under its name (a reload) replaces the one before."""
    _definitions[definition.name] = definition


def all_definitions() -> tuple[ReactorDefinition, ...]:
    """All of them, by name."""
    return tuple(_definitions[name] for name in sorted(_definitions))


def defined(name: str) -> ReactorDefinition | None:
    """The reactor of this full dotted name if this process has defined it; imports nothing."""
    return _definitions.get(name)


def lookup(name: str) -> ReactorDefinition:
    """The reactor named `payments.reactors.Payment`, `payments.Payment` or, if there is only one, `Payment`.

    A full dotted name imports its module when need be, so the name must come from the code or from a row, never from a
    request: see `registered`. Raises `UnknownReactor`, chained to the import's error if any.
    """
    return _found(name) if name in _definitions else _found(name, _import(name))


def registered(name: str) -> ReactorDefinition:
    """The same among those that this process has defined by now; imports nothing, whatever the name is."""
    return _found(name)


def _found(name: str, problem: Exception | None = None) -> ReactorDefinition:
    if name in _definitions:
        return _definitions[name]
    found = [definition for definition in all_definitions() if _answers_to(definition, name)]
    if len(found) == 1:
        return found[0]
    raise _unknown(name, found, problem) from problem


def _import(name: str) -> Exception | None:
    """Import the module part of a dotted name, also for a class inside a class; what went wrong with it, if anything.

    That there is no such module is no problem of its own: the name may be a short one.
    """
    module = name.rpartition(".")[0] if _DOTTED.match(name) else ""
    while module:
        try:
            importlib.import_module(module)
            return None
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                return error
            module = module.rpartition(".")[0]
        except Exception as error:  # noqa: BLE001 - whatever it raises, as models of an app that is not installed do
            return error
    return None


def _answers_to(definition: ReactorDefinition, name: str) -> bool:
    app, _, label = name.rpartition(".")
    return definition.label == label and (not app or app in definition.name.split(".")[:-1])


def _unknown(name: str, found: list[ReactorDefinition], problem: Exception | None) -> UnknownReactor:
    known = tuple(sorted(_definitions))
    if found:
        names = ", ".join(definition.name for definition in found)
        return UnknownReactor(
            f"{name!r} is the name of several reactors: {names}. Use the full one.", name=name, known=known
        )
    if problem is not None:
        return UnknownReactor(f"{name!r} cannot be imported: {problem}.", name=name, known=known)
    labels = {definition.label for definition in all_definitions()}
    suggestion = did_you_mean(name, labels | set(known)) or " No reactor is defined: write one in an app's reactors.py."
    return UnknownReactor(f"No reactor is named {name!r}.{suggestion}", name=name, known=known)
