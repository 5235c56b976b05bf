"""Typed, validated values of a step or a reactor. Types, rules and coercion are pydantic's, in its lax mode.

`Input` is what an author writes. Read on the class it is a reference to the value to come; read on an instance it is the
value. `InputSchema` is all inputs of one owner together, and validates.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar, get_origin, overload

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from reactor_coord.declare.body import Declared, note_made
from reactor_coord.declare.references import InputRef, OwnName, Reference, Scope
from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.errors import DefinitionError, InputValidationError

T = TypeVar("T")

REFERRING = frozenset({"returns", "background_after", "background_before"})
"""Attributes of a reactor in which an input or a step stands that was declared under a name of its own."""

NO_DEFAULT: Final = PydanticUndefined
UNRESOLVED: Final = "_unresolved"
"""Where an instance keeps the errors of inputs that could not be had, by name; no input's name begins with "_"."""

_NUMBERS = frozenset({"gt", "ge", "lt", "le", "multiple_of", "allow_inf_nan", "max_digits", "decimal_places"})
_TEXTS = frozenset({"min_length", "max_length", "pattern", "coerce_numbers_to_str"})
_VALIDATION = frozenset({"strict", "union_mode", "fail_fast", "discriminator"})
_WORDS = frozenset({"title", "description", "examples", "json_schema_extra"})
_OWN = frozenset({"default", "default_factory", "required", "redact"})
RULES = _NUMBERS | _TEXTS | _VALIDATION | _WORDS


class Input(InputRef, Declared, Generic[T]):
    """A typed value that a step or a reactor takes.

    `default` (copied for each use) or `default_factory` makes it optional; `required=False` without a default reads
    `None`. `redact=True`: shown as `[redacted]` wherever people look. Rules are pydantic's: `gt`, `ge`, `lt`, `le`,
    `multiple_of`, `min_length`, `max_length`, `pattern`, `max_digits`, `decimal_places`, `strict`, ...
    Raises `DefinitionError` for an unknown rule, a type pydantic cannot validate, or a default that breaks the rules.
    """

    kind_of_declaration = "input"

    @overload
    def __init__(
        self: Input[T | None], type: type[T], /, *, required: Literal[False], redact: bool = ..., **rules: Any
    ) -> None: ...
    @overload
    def __init__(
        self: Input[T | None],
        type: type[T],
        /,
        *,
        default: None,
        required: bool = ...,
        redact: bool = ...,
        **rules: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Input[T], type: type[T], /, *, default: T = ..., required: bool = ..., redact: bool = ..., **rules: Any
    ) -> None: ...
    @overload
    def __init__(
        self: Input[Any], type: Any, /, *, default: Any = ..., required: bool = ..., redact: bool = ..., **rules: Any
    ) -> None: ...
    def __init__(
        self,
        type: Any,
        /,
        *,
        default: Any = NO_DEFAULT,
        required: bool | None = None,
        redact: bool = False,
        **rules: Any,
    ) -> None:
        super().__init__(OwnName())
        note_made(self, needs_a_name=False)
        self.owner: type[Any] | None = None
        self.other_names: list[str] = []
        factory = rules.pop("default_factory", None)
        _check_rules(type, rules)
        _check_flag(type, "redact", redact)
        _check_required(type, required, default, factory)
        if factory is not None and (default is not NO_DEFAULT or not callable(factory)):
            raise DefinitionError(f"{_call(type)}: default_factory takes a function, and excludes default=.")
        self.definition = InputDefinition(
            name="",
            type=type,
            required=required is not False and default is NO_DEFAULT and factory is None,
            default=default,
            factory=factory,
            redact=redact,
            nullable=required is False or default is None,
            rules=MappingProxyType(rules),
            adapter=_adapter(type, rules),
        )
        self.definition.check_default()

    def __set_name__(self, owner: type[Any], name: str) -> None:
        # Verified when the owner is compiled: an error raised here would come out wrapped.
        if self.name:
            self.other_names += [] if name in REFERRING else [name]
            return
        self.name, self.owner = OwnName(name), owner

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Self | T:
        # Values live in the instance's __dict__, which wins over this (a non-data descriptor); so here there is none.
        if instance is None:
            return self
        unresolved = instance.__dict__.get(UNRESOLVED, {})
        if self.name in unresolved:
            raise unresolved[self.name]
        raise AttributeError(f"{owner.__name__}.{self.name} has no value: this step was built without that input.")

    def __repr__(self) -> str:
        return self.name or _call(self.definition.type)

    def read(self, scope: Scope) -> Any:
        return scope.input(self.name)


@dataclass(frozen=True, slots=True)
class InputDefinition:
    """One input, compiled. `nullable`: `None` is taken as it is, whatever the type."""

    name: str
    type: Any
    required: bool
    default: Any
    factory: Any
    redact: bool
    nullable: bool
    rules: Mapping[str, Any]
    adapter: TypeAdapter[Any] = field(repr=False, compare=False)

    def check_default(self) -> None:
        """Refuse a default that its own declaration would refuse."""
        if self.default is NO_DEFAULT or (self.default is None and self.nullable):
            return
        try:
            self.adapter.validate_python(copy.deepcopy(self.default))
        except ValidationError as error:
            problem = ", ".join(_problems(error, redact=False))
            raise DefinitionError(
                f"{_call(self.type, self.rules)}: the default {shown(self.default)} breaks the input's own rules: {problem}."
            ) from None

    def absent(self) -> Any:
        """The value when none is given."""
        if self.factory is not None:
            return self.validated(self.factory())
        if self.default is NO_DEFAULT or self.default is None:
            return None
        return self.validated(copy.deepcopy(self.default))

    def validated(self, value: Any) -> Any:
        """The coerced value. Raises pydantic's `ValidationError`."""
        if value is None and self.nullable:
            return None
        return self.adapter.validate_python(value)

    @property
    def type_label(self) -> str:
        """The type as people write it: `int`, `list[dict]`, `Decimal`."""
        return _type_label(self.type)

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the value; empty for a type that has none."""
        try:
            return self.adapter.json_schema()
        except PydanticUserError:
            return {}


@dataclass(frozen=True, slots=True)
class InputSchema:
    """All inputs of one owner, by name."""

    owner: str
    fields: Mapping[str, InputDefinition]

    @property
    def types(self) -> Mapping[str, Any]:
        """The type of each, by name."""
        return {name: definition.type for name, definition in self.fields.items()}

    @property
    def redacted(self) -> frozenset[str]:
        """Names of those that are not to be shown."""
        return frozenset(name for name, definition in self.fields.items() if definition.redact)

    def validate(self, values: Mapping[str, Any], absent: Collection[str] = frozenset()) -> dict[str, Any]:
        """The values coerced, defaults applied, in declaration order.

        Names in `absent` (arguments read from skipped steps) read `None` whatever their type. Raises
        `InputValidationError` with every problem at once; unknown names are problems too.
        """
        problems = {
            name: [f"unknown input.{did_you_mean(name, self.fields)}"] for name in values if name not in self.fields
        }
        found: dict[str, Any] = {}
        for name, definition in self.fields.items():
            try:
                found[name] = _value(definition, values, absent)
            except ValidationError as error:
                problems[name] = _problems(error, redact=definition.redact)
            except TypeError as error:  # pydantic's answer to a rule that does not fit the value's type
                problems[name] = ["is not valid" if definition.redact else str(error)]
        if problems:
            raise InputValidationError(owner=self.owner, fields=problems)
        return found

    def coerce(
        self, values: Mapping[str, Any], names: Collection[str], absent: Collection[str] = frozenset()
    ) -> dict[str, Any]:
        """The values of those inputs among `names`, as `validate` would have them; what it would refuse stays as it is.

        A required input without a value is left out.
        """
        found: dict[str, Any] = {}
        for name, definition in self.fields.items():
            if name not in names or (definition.required and name not in values):
                continue
            try:
                found[name] = _value(definition, values, absent)
            except (ValidationError, TypeError):
                if name in values:
                    found[name] = values[name]
        return found


def _value(definition: InputDefinition, values: Mapping[str, Any], absent: Collection[str]) -> Any:
    if definition.name in absent:
        return None
    if definition.name in values:
        return definition.validated(values[definition.name])
    if definition.required:
        raise ValidationError.from_exception_data(definition.name, [{"type": "missing", "loc": (), "input": None}])
    return definition.absent()


def schema_of(owner: type[Any], label: str, reserved: Iterable[str] = (), *, is_fixed: bool = False) -> InputSchema:
    """Collect the inputs a class declares and inherits (base classes first). `name = None` takes an inherited one away.

    `is_fixed`: any other value is refused there. A step reads it as its own attribute; a reactor would not read it at all.
    """
    fields: dict[str, InputDefinition] = {}
    for cls in reversed(owner.__mro__):
        for name, value in vars(cls).items():
            if isinstance(value, Input) and name in REFERRING and value.name != name:
                continue
            if isinstance(value, Input):
                _check_name(label, name, value, reserved)
                fields[name] = _named(value.definition, name)
            elif name in fields:
                if is_fixed and value is not None and not isinstance(value, Declared):
                    raise _taken_away(label, name, value)
                del fields[name]
    return InputSchema(owner=label, fields=MappingProxyType(fields))


def _taken_away(label: str, name: str, value: Any) -> DefinitionError:
    return DefinitionError(
        f"{label}.{name} = {shown(value)} stands over the input {name!r}, and no step would read it. Give the input a default, "
        f"as in {name} = Input(type, default=...), pass the value where a step takes it, or write {name} = None to go without."
    )


def schema_from_types(owner: str, types: Mapping[str, Any]) -> InputSchema:
    """A schema from a plain mapping of name to type (or to an `Input`), as an interrupt's payload has it."""
    fields = {
        name: _named((value if isinstance(value, Input) else Input[Any](value)).definition, name)
        for name, value in types.items()
    }
    return InputSchema(owner=owner, fields=MappingProxyType(fields))


def _named(definition: InputDefinition, name: str) -> InputDefinition:
    values = {key: getattr(definition, key) for key in definition.__dataclass_fields__}
    return InputDefinition(**{**values, "name": name})


def _check_name(label: str, name: str, value: Input[Any], reserved: Iterable[str]) -> None:
    if name in frozenset(reserved) or name.startswith("_"):
        raise DefinitionError(
            f"{label}: an input cannot be named {name!r}: that name is taken by the class itself. Choose another."
        )
    if value.other_names:
        names = ", ".join(repr(other) for other in (value.name, *value.other_names))
        raise DefinitionError(
            f"{label}: one Input object stands under several names ({names}); write an Input for each."
        )


def _check_flag(type_: Any, option: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise DefinitionError(f"{_call(type_)}: {option}={shown(value)} must be True or False.")


def _check_required(type_: Any, required: Any, default: Any, factory: Any) -> None:
    if required is None:
        return
    _check_flag(type_, "required", required)
    if required and (default is not NO_DEFAULT or factory is not None):
        raise DefinitionError(
            f"{_call(type_)}: required=True and a default contradict each other: with a default it may be left out. Keep one."
        )


def _check_rules(type_: Any, rules: Mapping[str, Any]) -> None:
    if isinstance(type_, str):
        raise DefinitionError(f"Input({type_!r}): the type is a text; give the type itself, as in Input(int).")
    if isinstance(type_, Reference):
        raise DefinitionError(f"Input({type_!r}): an input takes a type, not another reference.")
    for rule in rules:
        if rule not in RULES and rule != "default_factory":
            raise DefinitionError(f"{_call(type_)}: there is no rule {rule!r}.{did_you_mean(rule, RULES | _OWN)}")


def _adapter(type_: Any, rules: Mapping[str, Any]) -> TypeAdapter[Any]:
    annotated = Annotated[type_, Field(**rules)] if rules else type_
    try:
        adapter = _built(annotated)
    except Exception as error:
        raise DefinitionError(f"{_call(type_, rules)}: pydantic cannot validate this: {error}") from error
    # A rule that a plain type does not know becomes a check after it, which would only fail on the first value.
    if rules and (get_origin(type_) or type_) in _PLAIN and _is_wrapped(adapter):
        raise DefinitionError(f"{_call(type_, rules)}: these rules do not go together with {_type_label(type_)}.")
    return adapter


_PLAIN: Final[tuple[Any, ...]] = (int, float, str, bytes, bool, list, dict, set, tuple)


def _is_wrapped(adapter: TypeAdapter[Any]) -> bool:
    return str(adapter.core_schema.get("type", "")).startswith(("function", "chain"))


def _built(annotated: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotated, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotated)


def _problems(error: ValidationError, *, redact: bool) -> list[str]:
    """pydantic's sentences, with the place inside the value; a redacted value's are not repeated (they may quote it)."""
    if redact and not all(
        detail["type"] == "missing" for detail in error.errors(include_url=False, include_input=False)
    ):
        return ["is not valid"]
    texts = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(part) for part in detail["loc"])
        texts.append(f"{place}: {detail['msg']}" if place else detail["msg"])
    return texts


def _type_label(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not getattr(type_, "__args__", None) else str(type_)


def _call(type_: Any, rules: Mapping[str, Any] = MappingProxyType({})) -> str:
    return f"Input({', '.join([_type_label(type_), *(f'{name}={shown(value)}' for name, value in rules.items())])})"
