"""Checks of single options, each ending in a `DefinitionError` that names the place, the option, the value and the range.

Durations are seconds (int or float) or a `timedelta`; they come out as float seconds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from typing import Any

from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import closest
from reactor_coord.errors import DefinitionError

MIN_TTL = 0.1
MAX_SECONDS = 10 * 365 * 86400.0
MAX_COUNT = 10**12
MAX_PRIORITY = 65_534
"""Above it a rollback stands, which goes before all."""


def bad(place: str, option: str, value: object, rule: str) -> DefinitionError:
    """The error for one wrong option: `with_lock(ttl=0): ttl must be ...`."""
    return DefinitionError(f"{place}({option}={shown(value)}): {option} {rule}")


def seconds(place: str, option: str, value: Any, *, minimum: float = 0.0, above: bool = False) -> float:
    """A duration in seconds, at least `minimum` (strictly above it with `above`), finite."""
    number = value.total_seconds() if isinstance(value, dt.timedelta) else value
    limit = f"above {minimum:g}" if above else f"of at least {minimum:g}"
    rule = f"must be a number of seconds or a timedelta {limit}"
    if isinstance(number, bool) or not isinstance(number, int | float) or number in _NOT_FINITE or number != number:
        raise bad(place, option, value, f"{rule}; {_hint(value)}.")
    if number < minimum or (above and number == minimum):
        raise bad(place, option, value, f"{rule}.")
    if number > MAX_SECONDS:
        raise bad(place, option, value, "is longer than ten years; give a duration, not a point in time.")
    return float(number)


_NOT_FINITE = (math.inf, -math.inf)


def _hint(value: object) -> str:
    if value is None:
        return "a hold always ends by itself, None would never"
    return f"this is {type(value).__name__ if not isinstance(value, float) else value}"


def optional_seconds(place: str, option: str, value: Any, *, minimum: float = 0.0, above: bool = False) -> float | None:
    """The same, `None` allowed."""
    return None if value is None else seconds(place, option, value, minimum=minimum, above=above)


def count(place: str, option: str, value: Any, *, minimum: int = 1) -> int:
    """A whole number of at least `minimum`; `True` is not one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise bad(place, option, value, f"must be a whole number of at least {minimum}.")
    if value > MAX_COUNT:
        raise bad(place, option, value, f"must be a whole number of at most {MAX_COUNT:,}.")
    return value


def priority(place: str, option: str, value: Any) -> int:
    """A whole number, negative too; `True` is not one. Beyond `MAX_PRIORITY` all would be equal."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_PRIORITY:
        raise bad(place, option, value, f"must be a whole number from -{MAX_PRIORITY:,} to {MAX_PRIORITY:,}.")
    return value


def flag(place: str, option: str, value: Any) -> bool:
    """True or False, nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise bad(place, option, value, "must be True or False.")
    return value


def optional_text(place: str, option: str, value: Any, *, longest: int) -> None:
    """`None`, or a text that is neither empty nor too long."""
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest):
        raise bad(place, option, value, f"must be a text of 1 to {longest} characters.")


def mapping_of_texts(place: str, option: str, value: Any) -> None:
    """`None`, or a mapping whose keys are texts."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise bad(place, option, value, "must be a mapping with text keys.")


def choice(place: str, option: str, value: Any, allowed: Iterable[str]) -> str:
    """One of the allowed words."""
    words = tuple(allowed)
    if value not in words or not isinstance(value, str):
        suggestion = closest(value, words) if isinstance(value, str) else ""
        raise bad(place, option, value, f"must be one of {', '.join(map(repr, words))}.{suggestion}")
    return value
