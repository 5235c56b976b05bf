"""Values in error messages: short, and without doing any work."""

from __future__ import annotations

from collections.abc import Mapping

LONGEST = 200
"""Characters of a value that are written out."""

_WRITTEN_OUT = frozenset({"builtins", "datetime", "decimal", "fractions", "uuid", "zoneinfo", "reactor_coord"})


def shown(value: object) -> str:
    """The value as written, if it is of Python's own types or of this package; of any other its type.

    A queryset that prints itself would ask the database while a module is imported, and show its rows.
    """
    if isinstance(value, type):
        return value.__name__
    if not _is_written_out(value):
        return f"<{type(value).__name__}>"
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _is_written_out(value: object) -> bool:
    if isinstance(value, Mapping):
        return type(value) is dict and _is_written_out([*value.keys(), *value.values()])
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_written_out, value))
    return isinstance(value, type) or type(value).__module__.partition(".")[0] in _WRITTEN_OUT
