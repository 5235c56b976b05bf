"""The project's `REACTOR_COORD` dict as typed, validated settings.

`settings()` is what code reads (`settings().LEASE_TTL`, one spelling everywhere); `problems()` is what `checks.py` reports.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from reactor_coord.declare.coordination import ALGORITHMS, WINDOWS
from reactor_coord.declare.options import MAX_COUNT, MAX_SECONDS
from reactor_coord.declare.shown import shown

SETTING = "REACTOR_COORD"

Rule = Callable[[object], str | None]
"""Says what a value must be when it is not, else nothing."""


def _number(
    kind: str, most: float, *, above: float | None = None, least: float | None = None, whole: bool = False
) -> Rule:
    bound = f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""

    def rule(value: object) -> str | None:
        if not isinstance(value, int if whole else int | float) or isinstance(value, bool):
            return f"{kind}{bound}"
        if not (above is None or value > above) or not (least is None or value >= least):
            return f"{kind}{bound}"
        return None if value <= most else f"{kind}{bound} and of at most {most:,.0f}"

    return rule


def _seconds(*, above: float | None = None, least: float | None = None) -> Rule:
    return _number("a number of seconds", MAX_SECONDS, above=above, least=least)


def _whole(least: int) -> Rule:
    return _number("a whole number", MAX_COUNT, least=least, whole=True)


def _maybe(rule: Rule) -> Rule:
    def optional(value: object) -> str | None:
        wanted = None if value is None else rule(value)
        return f"{wanted}, or None" if wanted else None

    return optional


def _text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else "a string that is not empty"


def _prefix(value: object) -> str | None:
    good = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", value)
    return None if good else "1 to 64 letters, digits or any of _ . : - (braces would change the Redis slot)"


def _dotted_path(value: object) -> str | None:
    good = isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value)
    return None if good else "the dotted path of a class, such as 'project.module.Dispatcher'"


def _dotted_paths(value: object) -> str | None:
    good = isinstance(value, list | tuple) and all(isinstance(each, str | type) for each in value)
    return None if good else "a list of dotted paths or classes"


def _texts(value: object) -> str | None:
    good = isinstance(value, list | tuple) and all(isinstance(each, str) and each.strip() for each in value)
    return None if good else "a list of strings"


def _rate_limits(value: object) -> str | None:
    good = isinstance(value, Mapping) and all(isinstance(name, str) and _is_limit(each) for name, each in value.items())
    if good:
        return None
    return (
        "a dict of names to windows, each second, minute, hour, day or a number of seconds with how many may start in it, "
        "such as {'stripe': {'second': 3, 'minute': 100}} or "
        "{'courier': {'limits': {'second': 5}, 'algorithm': 'sliding_window'}}"
    )


def _is_limit(value: object) -> bool:
    if not isinstance(value, Mapping) or value.get("algorithm", ALGORITHMS[0]) not in ALGORITHMS:
        return False
    windows = {name: count for name, count in value.items() if name != "algorithm"}
    if "limits" in windows:
        if len(windows) > 1 or not isinstance(windows["limits"], Mapping):
            return False
        windows = dict(windows["limits"])
    return bool(windows) and all(_is_window(name) and _COUNT(count) is None for name, count in windows.items())


def _is_window(name: object) -> bool:
    if name in WINDOWS:
        return True
    try:
        return not isinstance(name, bool) and 0 < float(name) <= MAX_SECONDS  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


_SECONDS = _seconds(above=0)
_SECONDS_OR_NONE_AT_ALL = _seconds(least=0)
_DAYS = _number("a number of days", MAX_SECONDS / 86400, above=0)
_COUNT = _whole(1)


def _setting(default: Any, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default. Times are seconds."""

    REDIS_ALIAS: str = _setting("default", _text)
    KEY_PREFIX: str = _setting("rc", _prefix)
    QUEUE: str | None = _setting(None, _maybe(_text))
    SNOOZE_BASE_DELAY: float = _setting(5.0, _SECONDS)
    SNOOZE_MAX_DELAY: float = _setting(60.0, _SECONDS)
    SNOOZE_JITTER: float = _setting(5.0, _SECONDS_OR_NONE_AT_ALL)
    SNOOZE_MAX_ATTEMPTS: int | None = _setting(20, _maybe(_COUNT))
    HANDOFF_GRACE: float = _setting(2.0, _SECONDS)
    LEASE_TTL: float = _setting(60.0, _SECONDS)
    SWEEP_INTERVAL: float = _setting(5.0, _SECONDS)
    REDIS_PATIENCE: float = _setting(300.0, _SECONDS_OR_NONE_AT_ALL)
    RETENTION_DAYS: float | None = _setting(30.0, _maybe(_DAYS))
    MAX_PAYLOAD_BYTES: int = _setting(1_000_000, _whole(1_000))
    MAX_WORKER_LOSSES: int = _setting(3, _COUNT)
    ASYNC_WAIT_TIMEOUT: float = _setting(30.0, _SECONDS_OR_NONE_AT_ALL)
    ASYNC_PARK_TIMEOUT: float = _setting(3600.0, _SECONDS)
    RATE_LIMITS: Mapping[str, Mapping[str, int]] = field(
        default_factory=lambda: MappingProxyType({}), metadata={"rule": _rate_limits}
    )
    API_PERMISSION_CLASSES: Sequence[str] = _setting(("rest_framework.permissions.IsAdminUser",), _dotted_paths)
    API_QUEUES: Sequence[str] = _setting((), _texts)
    DISPATCHER: str = _setting("reactor_coord.workers.dispatcher.CeleryDispatcher", _dotted_path)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the dict: `kind` is `shape`, `unknown`, `value` or `together`."""

    kind: str
    message: str
    hint: str


RULES: Mapping[str, Rule] = {each.name: each.metadata["rule"] for each in fields(Settings)}
_FLOATS = frozenset(each.name for each in fields(Settings) if "float" in str(each.type))


def problems(raw: object) -> list[Problem]:
    """All that is wrong with a `REACTOR_COORD` value, in the order of its keys."""
    if not isinstance(raw, Mapping):
        return [Problem("shape", f"{SETTING} is a {type(raw).__name__}, not a dict.", f"Write {SETTING} = {{...}}.")]
    found = [problem for key, value in raw.items() if (problem := _problem(str(key), value))]
    return found or _together(raw)


def _problem(key: str, value: object) -> Problem | None:
    rule = RULES.get(key)
    if rule is None:
        close = difflib.get_close_matches(key.upper(), RULES, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(sorted(RULES))}."
        return Problem("unknown", f"{SETTING} has an unknown key {key!r}.", hint)
    wanted = rule(value)
    if wanted is None:
        return None
    return Problem("value", f"{SETTING}[{key!r}] is {shown(value)}.", f"It must be {wanted}.")


def _together(raw: Mapping[str, Any]) -> list[Problem]:
    got = _build(raw)
    found = []
    if got.SNOOZE_MAX_DELAY < got.SNOOZE_BASE_DELAY:
        found.append(
            Problem(
                "together",
                f"{SETTING}['SNOOZE_MAX_DELAY'] ({got.SNOOZE_MAX_DELAY:g}) is less than 'SNOOZE_BASE_DELAY' "
                f"({got.SNOOZE_BASE_DELAY:g}).",
                "Raise SNOOZE_MAX_DELAY or lower SNOOZE_BASE_DELAY.",
            )
        )
    return found


def _build(raw: Mapping[str, Any]) -> Settings:
    values = dict(raw)
    for name in _FLOATS & values.keys():
        values[name] = None if values[name] is None else float(values[name])
    return Settings(**values)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings in force, cached until Django says that they changed.

    Raises `ImproperlyConfigured` naming every problem: a value nobody can use is never replaced by a default.
    """
    raw = getattr(django_settings, SETTING, {})
    found = problems(raw)
    if found:
        raise ImproperlyConfigured(" ".join(f"{each.message} {each.hint}" for each in found))
    return _build(raw)


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    if setting == SETTING:
        settings.cache_clear()


DEFAULTS: Mapping[str, object] = {
    each.name: each.default if each.default is not MISSING else {} for each in fields(Settings)
}
