"""Where an argument comes from: an input, a step's value, a path into it, a mapped value, an element of a map.

A reference is a real Python object written in a class body; it says what it depends on (`steps`, `inputs`) and reads its
value from a `Scope` that the runtime provides. What is not a reference is itself (`Constant`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

from reactor_coord.declare.functions import check_function
from reactor_coord.declare.shown import shown
from reactor_coord.errors import DefinitionError, ReactorCoordError
from reactor_coord.results import Failure, Success


class Missing(Enum):
    """Two absences that must not be mistaken for values."""

    UNSET = "unset"
    SKIPPED = "skipped"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Missing.UNSET
SKIPPED_VALUE: Final = Missing.SKIPPED


class Scope(Protocol):
    """What references read from: one execution's inputs and the values of its steps so far."""

    def input(self, name: str) -> Any:
        """The reactor's validated input."""

    def result(self, step: str) -> Any:
        """The step's value; `UNSET` when it has none yet, `SKIPPED_VALUE` when it was skipped without one."""

    def failure(self, step: str) -> Failure | None:
        """How the step failed, where that does not fail its reactor; None of any other."""

    @property
    def element(self) -> Any:
        """The element at hand inside a map; `UNSET` elsewhere."""


class Reference:
    """Something a value is read from later. Has no value while the class is being built."""

    root_kind: ClassVar[str] = ""

    def map(self, function: Callable[[Any], Any]) -> Reference:
        """The value passed through `function(value)`, which runs when the step's arguments are resolved.

        Not called when the source was skipped (the result is `None`). If it raises, the step that reads it fails.
        """
        return MapRef(self, function)

    def __getitem__(self, key: Any) -> Reference:
        return PathRef(self, key)

    def resolve(self, scope: Scope) -> Any:
        """The value in `scope`; `None` when its source was skipped."""
        value = self.read(scope)
        return None if value is SKIPPED_VALUE else value

    def read(self, scope: Scope) -> Any:
        """The value in `scope`, `SKIPPED_VALUE` told apart."""
        raise NotImplementedError

    def roots(self) -> frozenset[Reference]:
        """The inputs and steps this is read from in the end."""
        return frozenset()

    def steps(self) -> frozenset[str]:
        """Names of the steps this depends on."""
        return frozenset(_name(root) for root in self.roots() if root.root_kind == "step")

    def inputs(self) -> frozenset[str]:
        """Names of the reactor's inputs this depends on."""
        return frozenset(_name(root) for root in self.roots() if root.root_kind == "input")

    def functions(self) -> Iterator[Any]:
        """The functions that are called to read it."""
        yield from ()

    def has_element(self) -> bool:
        """Whether `element()` is somewhere in it."""
        return any(root.root_kind == "element" for root in self.roots())

    def __bool__(self) -> bool:
        raise DefinitionError(f"{self!r} has no value while the class is being built; use where= or .map(function).")

    def __eq__(self, other: object) -> bool:
        # A comparison with a value would be False, and `flag=amount == 5` that constant.
        if other is None or isinstance(other, Reference):
            return self is other
        raise DefinitionError(
            f"{self!r} was compared with {shown(other)} while the class is being built, where it has no value; compare in "
            "where= or in .map(function)."
        )

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        raise DefinitionError(
            f"{self!r} was put into a text while the class is being built, where it has no value; "
            'write .map("...{}".format) instead.'
        )

    def __str__(self) -> str:
        # `"acct:%s" % account` would be one key for every account.
        return format(self)

    # `__getitem__` alone would make a reference endlessly iterable.
    __iter__ = None


def _name(root: Reference) -> str:
    return str(getattr(root, "name", ""))


def is_queryset(value: Any) -> bool:
    """Whether it is a queryset of Django, told by its shape: nothing in this layer imports Django."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("query", "iterator", "all"))


class Constant(Reference):
    """A plain value. Containers are copied for each reader, so that no body can change another's argument; a queryset is
    asked anew."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return shown(self.value)

    def read(self, scope: Scope) -> Any:
        if is_queryset(self.value):  # it keeps the rows it has read once, and would give them to every later execution
            return self.value.all()
        return copy.deepcopy(self.value) if isinstance(self.value, dict | list | set) else self.value


class CallRef(Reference):
    """What a function of nothing returns, asked each time it is read."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"{getattr(self.function, '__name__', '...')}()"

    def functions(self) -> Iterator[Any]:
        yield self.function

    def read(self, scope: Scope) -> Any:
        return self.function()


class PathRef(Reference):
    """`source[key]`: an item of a mapping or a sequence, or an attribute of an object without items."""

    def __init__(self, source: Reference, key: Any) -> None:
        self.source, self.key = source, key

    def __repr__(self) -> str:
        return f"{self.source!r}[{self.key!r}]"

    def roots(self) -> frozenset[Reference]:
        return self.source.roots()

    def functions(self) -> Iterator[Any]:
        return self.source.functions()

    def read(self, scope: Scope) -> Any:
        value = self.source.read(scope)
        return value if value is SKIPPED_VALUE else self._item(value)

    def _item(self, value: Any) -> Any:
        by_item = hasattr(type(value), "__getitem__")
        if not by_item and isinstance(self.key, str) and hasattr(value, self.key):
            return getattr(value, self.key)
        try:
            return value[self.key]
        except (LookupError, TypeError) as error:
            # Types only: the value itself may be redacted.
            raise LookupError(f"{self!r}: a {type(value).__name__} has no item {self.key!r}") from error


class MapRef(Reference):
    """`source.map(function)`."""

    def __init__(self, source: Reference, function: Callable[[Any], Any]) -> None:
        if not callable(function) or isinstance(function, Reference):
            raise DefinitionError(f"{source!r}.map({shown(function)}): map takes a function of one value.")
        check_function(f"{source!r}.map", function, 1, "with one value")
        self.source, self.function = source, function

    def __repr__(self) -> str:
        return f"{self.source!r}.map({getattr(self.function, '__name__', '...')})"

    def roots(self) -> frozenset[Reference]:
        return self.source.roots()

    def functions(self) -> Iterator[Any]:
        yield from self.source.functions()
        yield self.function

    def read(self, scope: Scope) -> Any:
        value = self.source.read(scope)
        return value if value is SKIPPED_VALUE else self.function(value)


class CollectionRef(Reference):
    """A dict, list or tuple with references somewhere inside: each is resolved in its place."""

    def __init__(self, shape: Mapping[Any, Any] | Sequence[Any]) -> None:
        self.shape = shape
        self.parts = {key: as_reference(part) for key, part in _items(shape)}

    def __repr__(self) -> str:
        return shown(self.shape)

    def roots(self) -> frozenset[Reference]:
        return frozenset[Reference]().union(*(part.roots() for part in self.parts.values()))

    def functions(self) -> Iterator[Any]:
        return (function for part in self.parts.values() for function in part.functions())

    def read(self, scope: Scope) -> Any:
        values = {key: part.resolve(scope) for key, part in self.parts.items()}
        if isinstance(self.shape, Mapping):
            return values
        return tuple(values.values()) if isinstance(self.shape, tuple) else list(values.values())


class ElementRef(Reference):
    """The item a map is at."""

    root_kind = "element"

    def __repr__(self) -> str:
        return "element()"

    def roots(self) -> frozenset[Reference]:
        return frozenset({self})

    def read(self, scope: Scope) -> Any:
        if scope.element is UNSET:
            raise ReactorCoordError("element() was read outside a map.")
        return scope.element


class InputRef(Reference):
    """The reactor's input of a name: what wiring by name makes. An `Input` written by hand reads the same way."""

    root_kind = "input"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def roots(self) -> frozenset[Reference]:
        return frozenset({self})

    def read(self, scope: Scope) -> Any:
        return scope.input(self.name)


class StepRef(Reference):
    """The value of the step of a name. A step written by hand reads the same way."""

    root_kind = "step"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def roots(self) -> frozenset[Reference]:
        return frozenset({self})

    def read(self, scope: Scope) -> Any:
        value = scope.result(self.name)
        if value is not UNSET:
            return value
        failed = scope.failure(self.name)
        if failed is not None:
            raise ReactorCoordError(
                f"Step {self.name!r} has no value, for it failed ({failed.error}). Read {self.name}.outcome to judge that."
            )
        raise ReactorCoordError(f"Step {self.name!r} has no value yet.")


class LastStepRef(StepRef):
    """What a reactor returns that names nothing: its last step's value, or None where that failed without failing the reactor."""

    def read(self, scope: Scope) -> Any:
        return None if scope.failure(self.name) is not None else super().read(scope)


class OutcomeRef(Reference):
    """How a step ended: its value as a `Success`, or its `Failure`; as a value where it was skipped."""

    def __init__(self, source: StepRef) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"{self.source!r}.outcome"

    def roots(self) -> frozenset[Reference]:
        return self.source.roots()

    def read(self, scope: Scope) -> Any:
        failed = scope.failure(self.source.name)
        if failed is not None:
            return failed
        value = self.source.read(scope)
        return value if value is SKIPPED_VALUE else Success(value)


def element() -> Reference:
    """In `map_each(...)`: the item at hand. `element()["sku"]` and `element().map(fn)` work as on any reference."""
    return ElementRef()


class OwnName(str):
    """The name of a declaration itself: `charge.name`, written where the value's `charge["name"]` was meant."""

    __slots__ = ()


def as_reference(value: Any) -> Reference:
    """The reference itself, a collection that contains some, or the plain value as one."""
    if isinstance(value, Reference):
        return value
    if isinstance(value, OwnName):
        raise DefinitionError(
            "An argument is the .name of an input or a step, which is that declaration's own name and no part of its value. "
            'Write order["name"] for the item or attribute "name" of the value of order.'
        )
    if isinstance(value, dict | list | tuple) and _contains_reference(value):
        return CollectionRef(value)
    return Constant(value)


def _items(shape: Mapping[Any, Any] | Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return shape.items() if isinstance(shape, Mapping) else enumerate(shape)


def _contains_reference(value: Any) -> bool:
    if isinstance(value, Reference):
        return True
    return isinstance(value, dict | list | tuple) and any(_contains_reference(part) for _, part in _items(value))


def resolve_arguments(
    arguments: Mapping[str, Reference], scope: Scope, names: Collection[str] | None = None
) -> dict[str, Any]:
    """Every argument's value (or of those in `names`), in declaration order. Raises what a `map` raises."""
    return {name: ref.resolve(scope) for name, ref in _chosen(arguments, names)}


def skipped_arguments(arguments: Mapping[str, Reference], scope: Scope) -> frozenset[str]:
    """The arguments that read `None` because every step they are read from was skipped."""
    return frozenset(
        name
        for name, ref in arguments.items()
        if (steps := ref.steps()) and all(scope.result(step) is SKIPPED_VALUE for step in steps)
    )


def _chosen(arguments: Mapping[str, Reference], names: Collection[str] | None) -> Iterator[tuple[str, Reference]]:
    return ((name, ref) for name, ref in arguments.items() if names is None or name in names)
