"""The key of a hold, computed from the arguments of one step (or the inputs of a reactor).

Equality: a value counts as its text, so `1` and `"1"` are one key and `1` and `1.0` are two; text is compared in Unicode
normal form NFC; an enum counts as its value, a model instance as its primary key. With several placeholders the
separators between them are percent-encoded inside the values, so that `"a:b"` + `"c"` is not `"a"` + `"b:c"`.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from string import Formatter
from types import MappingProxyType
from typing import Any, TypeAlias

from reactor_coord.errors import CoordinationKeyError, DefinitionError

Template: TypeAlias = "str | Callable[[Mapping[str, Any]], Any]"
_FORMATTER = Formatter()


@dataclass(frozen=True, slots=True)
class Key:
    """A key's template and the argument names it reads (none are known of a callable)."""

    template: Template
    names: frozenset[str] = field(default=frozenset(), compare=False)

    def compute(self, arguments: Mapping[str, Any], redacted: frozenset[str] = frozenset()) -> str:
        """The key for these arguments. Redacted ones appear as `#` and 12 hex digits of their SHA-256.

        Raises `CoordinationKeyError` when it cannot be told: the template's callable raises or gives `None` or "", a
        value is missing, `None` or empty, or has no text that two processes would agree on.
        """
        try:
            return self._computed(arguments, redacted)
        except CoordinationKeyError:
            raise
        except Exception as error:
            raise _failed(self, f"raised {type(error).__name__}: {error}") from error

    def _computed(self, arguments: Mapping[str, Any], redacted: frozenset[str]) -> str:
        if callable(self.template):
            shown = {name: _masked(value) if name in redacted else value for name, value in arguments.items()}
            value = self.template(MappingProxyType(shown))
            return _text(self, value, "it gave")
        return _text(self, _filled(self, self.template, arguments, redacted), "it gave")

    def __str__(self) -> str:
        return self.template if isinstance(self.template, str) else getattr(self.template, "__name__", "callable")


def parse_key(place: str, template: Any) -> Key:
    """Check a template as written by an author and find the names in it. Raises `DefinitionError`."""
    if isinstance(template, Key):
        return template
    if isinstance(template, type) or not (isinstance(template, str) or callable(template)):
        raise DefinitionError(
            f'{place}: the key must be a format string such as "acct:{{account_id}}" or a function of the arguments, '
            f"not {template!r}."
            + (f' Write @{place}("key") with its key in parentheses.' if isinstance(template, type) else "")
        )
    if not isinstance(template, str):
        return Key(template)
    if not template.strip():
        raise DefinitionError(f'{place}: the key is empty; give one such as "acct:{{account_id}}".')
    return Key(template, frozenset(_placeholders(place, template)))


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


def _root(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


def _filled(key: Key, template: str, arguments: Mapping[str, Any], redacted: frozenset[str]) -> str:
    parts = list(_FORMATTER.parse(template))
    separators = _separators(parts)
    text: list[str] = []
    for literal, name, spec, conversion in parts:
        text.append(literal)
        if name is None:
            continue
        root = _root(name)
        if root not in arguments:
            raise _failed(key, f"has no argument {root!r} to read")
        value, _ = _FORMATTER.get_field(name, (), arguments)
        what = f"{name!r} is"
        if root in redacted:
            _text(key, value, what)
            filled = _masked(value)
        elif spec or conversion:
            if value is None:
                raise _failed(key, f"{what} None")
            width = _filled(key, spec, arguments, redacted) if spec else ""
            filled = _FORMATTER.format_field(_FORMATTER.convert_field(value, conversion), width)
        else:
            filled = _text(key, value, what)
        text.append(_escaped(filled, separators))
    return "".join(text)


def _separators(parts: list[tuple[str, str | None, str | None, str | None]]) -> str:
    """Characters that stand between two placeholders; none when there is only one, whose value is then kept as it is."""
    filled = [index for index, part in enumerate(parts) if part[1] is not None]
    if len(filled) < 2:
        return ""
    return "".join(literal for literal, *_ in parts[filled[0] + 1 : filled[-1] + 1]) + "%"


def _escaped(text: str, separators: str) -> str:
    if not any(char in separators for char in text):
        return text
    return "".join("".join(f"%{byte:02X}" for byte in char.encode()) if char in separators else char for char in text)


def _masked(value: Any) -> str:
    return "#" + hashlib.sha256(str(value).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _text(key: Key, value: Any, what: str) -> str:
    """The value as text that every process would agree on."""
    if isinstance(value, Enum):
        value = value.value
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        value = value.pk
    if value is None:
        raise _failed(key, f"{what} None")
    if isinstance(value, dict | set | frozenset):
        raise _failed(key, f"{what} a {type(value).__name__}, whose order is not fixed; name one value in it")
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise _failed(key, f"{what} a {type(value).__name__}, which has no text of its own; name one attribute of it")
    text = unicodedata.normalize("NFC", value if isinstance(value, str) else str(value))
    if not text:
        raise _failed(key, f"{what} empty")
    return text


def _failed(key: Key, problem: str) -> CoordinationKeyError:
    return CoordinationKeyError(template=str(key), problem=problem)
