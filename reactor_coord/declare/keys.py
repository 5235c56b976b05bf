"""The key of a hold, computed from the arguments of one step (or the inputs of a reactor).

Equality: a value counts as its text, so `1` and `"1"` are one key and `1` and `1.0` are two; text is compared in Unicode
normal form NFC; an enum counts as its value, a model instance as its primary key. Two different lists of values never
make one key of a template: with several placeholders, what stands between them is percent-encoded inside the values, so
that `"a:b"` + `"c"` is not `"a"` + `"b:c"`; between two that touch a `|` is put.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter
from typing import Any, TypeAlias

from reactor_coord.declare.functions import check_function
from reactor_coord.declare.key_texts import NoText, check_stable, normal, stable_text
from reactor_coord.declare.shown import shown
from reactor_coord.errors import CoordinationKeyError, DefinitionError

Template: TypeAlias = "str | Callable[[Mapping[str, Any]], Any]"
_FORMATTER = Formatter()
_TOUCHING = "|"
"""What is put between two placeholders that have nothing between them."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key's template and the argument names it reads (none are known of a callable)."""

    template: Template
    names: frozenset[str] = field(default=frozenset(), compare=False)

    def compute(self, arguments: Mapping[str, Any], redacted: frozenset[str] = frozenset()) -> str:
        """The key for these arguments.

        In a template a redacted one appears as `#` and 12 hex digits of the SHA-256 of its text. A function reads the
        values themselves; has it read a redacted one, the whole key is `#` and 32 hex digits of the hash of its text.

        Raises `CoordinationKeyError` when it cannot be told: the template's function raises or gives `None` or "", a
        value is missing, `None` or empty, or has no text that two processes would agree on.
        """
        watched = _Watched(arguments, redacted)
        try:
            return self._computed(watched)
        except CoordinationKeyError:
            raise
        except NoText as error:
            raise _failed(self, f"it gave {error}") from None
        except Exception as error:
            if watched.has_read_redacted:  # its message may quote what must not be shown
                raise _failed(self, f"raised {type(error).__name__}") from None
            raise _failed(self, f"raised {type(error).__name__}: {error}") from error

    def _computed(self, arguments: _Watched) -> str:
        if not callable(self.template):
            return stable_text(_filled(self, _layout(self.template), arguments))
        text = stable_text(self.template(arguments))
        return _hashed(text, 32) if arguments.has_read_redacted else text

    def wholes(self) -> Iterator[str]:
        """The names that stand in the template as they are: `{tags}`, not `{order[id]}`."""
        parts = _FORMATTER.parse(self.template) if isinstance(self.template, str) else ()
        return (name for _, name, _, _ in parts if name is not None and name == _root(name))

    def __str__(self) -> str:
        return self.template if isinstance(self.template, str) else getattr(self.template, "__name__", "callable")


class _Watched(Mapping[str, Any]):
    """The arguments, and whether a redacted one was read."""

    def __init__(self, arguments: Mapping[str, Any], redacted: frozenset[str]) -> None:
        self._arguments, self.redacted = arguments, redacted
        self.has_read_redacted = False

    def __getitem__(self, name: str) -> Any:
        self.has_read_redacted |= name in self.redacted and name in self._arguments
        return self._arguments[name]

    def __contains__(self, name: object) -> bool:
        return name in self._arguments

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    def __repr__(self) -> str:
        return repr(dict(self))


# ---- as written


def parse_key(place: str, template: Any) -> Key:
    """Check a template as written by an author and find the names in it. Raises `DefinitionError`."""
    if isinstance(template, Key):
        return template
    if isinstance(template, type) or not (isinstance(template, str) or callable(template)):
        raise DefinitionError(
            f'{place}: the key must be a format string such as "acct:{{account_id}}" or a function of the arguments, '
            f"not {shown(template)}."
            + (f' Write @{place}("key") with its key in parentheses.' if isinstance(template, type) else "")
        )
    if not isinstance(template, str):
        check_function(f"{place}: the key", template, 1, "with one mapping, the arguments by name")
        return Key(template)
    if not template.strip():
        raise DefinitionError(f'{place}: the key is empty; give one such as "acct:{{account_id}}".')
    names = frozenset(_placeholders(place, template))
    _check_gaps(place, template)
    return Key(template, names)


def _placeholders(place: str, template: str) -> list[str]:
    try:
        parsed = list(_FORMATTER.parse(template))
    except ValueError as error:
        raise DefinitionError(f"{place}: the key {template!r} is not a valid format string: {error}.") from None
    names: list[str] = []
    for _, name, spec, _ in parsed:
        if name is None:
            continue
        root = _root(name)
        if not root.isidentifier():
            raise DefinitionError(
                f"{place}: the key {template!r} has the placeholder {{{name}}}; "
                'placeholders are argument names, as in "acct:{account_id}".'
            )
        names += [root, *_placeholders(place, spec or "")]
    return names


def _check_gaps(place: str, template: str) -> None:
    """Refuse a text between two placeholders that would merge with the value before it."""
    for gap in _layout(template).gaps:
        if unicodedata.category(gap[0]).startswith("M") or "\u1160" <= gap[0] <= "\u11ff":
            raise DefinitionError(
                f"{place}: in the key {template!r} the text after a placeholder begins with a combining mark, which would "
                "become a part of the value before it; begin it with another character."
            )


def _root(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


# ---- filled


@dataclass(frozen=True, slots=True)
class _Field:
    """A placeholder: its path (`order[id]`), format spec and conversion (`r`, `s`, `a` or none)."""

    path: str
    spec: str
    conversion: str | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """A template taken apart: what stands before, between (one gap fewer than fields) and behind its placeholders."""

    head: str
    fields: tuple[_Field, ...]
    gaps: tuple[str, ...]
    tail: str
    separators: frozenset[str]
    """The characters that are encoded inside values; none where a single value cannot be mistaken for anything else."""


@lru_cache(maxsize=2048)
def _layout(template: str) -> _Layout:
    texts, fields = [""], []
    for literal, name, spec, conversion in _FORMATTER.parse(template):
        texts[-1] += literal
        if name is not None:
            fields.append(_Field(name, spec or "", conversion))
            texts.append("")
    gaps = tuple(map(_gap, texts[1:-1]))
    separators = frozenset("".join(gaps) + "%") if gaps else frozenset()
    return _Layout(normal(texts[0]), tuple(fields), gaps, texts[-1] if fields else "", separators)


def _gap(literal: str) -> str:
    """What stands between two values: never nothing, and no `%` that could be read as the begin of an encoded character."""
    return normal(literal).replace("%", "%%") or _TOUCHING


def _filled(key: Key, layout: _Layout, arguments: _Watched) -> str:
    text = layout.head
    if not layout.fields:
        return text
    for each, gap in zip(layout.fields, (*layout.gaps, layout.tail), strict=True):
        text += _placed(text, _value(key, each, arguments), layout.separators) + gap
    return text


def _placed(before: str, value: str, separators: frozenset[str]) -> str:
    """The value with the separators in it encoded, and what at its begin would merge with the text before it."""
    if not separators:
        return value
    value = "".join(_encoded(char) if char in separators else char for char in value)
    merged = ""
    while value and not unicodedata.is_normalized("NFC", before + merged + value):
        merged, value = merged + _encoded(value[0]), value[1:]
    return merged + value


def _encoded(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _value(key: Key, field: _Field, arguments: _Watched) -> str:
    root = _root(field.path)
    if root not in arguments:
        raise _failed(key, f"has no argument {root!r} to read")
    value, _ = _FORMATTER.get_field(field.path, (), arguments)
    try:
        if root in arguments.redacted:
            return _hashed(stable_text(value), 12)
        return _formatted(value, field, arguments) if field.spec or field.conversion else stable_text(value)
    except NoText as error:
        raise _failed(key, f"{field.path!r} is {error}") from None


def _formatted(value: Any, field: _Field, arguments: _Watched) -> str:
    """The value as its conversion and spec have it; a spec may name arguments itself, as in `{number:0{width}}`."""
    if field.conversion in ("r", "a"):
        check_stable(value, as_repr=True)
    else:
        check_stable(value)
    for _, name, _, _ in _FORMATTER.parse(field.spec):
        if name is not None:
            check_stable(_FORMATTER.get_field(name, (), arguments)[0])
    spec = _FORMATTER.vformat(field.spec, (), arguments)
    text = normal(_FORMATTER.format_field(_FORMATTER.convert_field(value, field.conversion), spec))
    if not text:
        raise NoText("empty")
    return text


def _hashed(text: str, digits: int) -> str:
    return "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def _failed(key: Key, problem: str) -> CoordinationKeyError:
    return CoordinationKeyError(template=str(key), problem=problem)
