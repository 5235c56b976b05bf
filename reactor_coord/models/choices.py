"""Choices and constraints of the status columns, derived from the engine's words."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from django.db import models


def choices(words: Iterable[StrEnum]) -> list[tuple[str, str]]:
    """Pairs for a field's `choices`: the word, and the word for people."""
    return [(word.value, word.value.replace("_", " ")) for word in words]


def one_of(column: str, words: Iterable[StrEnum], *, name: str, blank: bool = False) -> models.CheckConstraint:
    """A constraint that `column` is one of `words` (or empty)."""
    values = ([""] if blank else []) + [word.value for word in words]
    return models.CheckConstraint(condition=models.Q((f"{column}__in", values)), name=name)


def values(words: Iterable[StrEnum]) -> list[str]:
    """The plain strings, sorted: the same list in every migration, whatever the set's order."""
    return sorted(word.value for word in words)
