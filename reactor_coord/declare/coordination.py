"""What a step or a reactor declares about sharing: five frozen values, checked when they are written.

How they are honoured is the runtime's; how an author writes them, `decorators`. All times are seconds.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from reactor_coord.declare import options
from reactor_coord.declare.key_texts import unstable_type
from reactor_coord.declare.keys import Key, parse_key
from reactor_coord.declare.suggest import closest, did_you_mean
from reactor_coord.errors import DefinitionError

ON_CONTENTION = ("park", "wait", "fail", "skip")
ON_RATE_CONTENTION = ("park", "fail", "skip")
ON_LOST = ("fail", "warn")
ALGORITHMS = ("fixed_window", "sliding_window")
WINDOWS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
BUCKETS = ("minute", "hour", "day", "week", "month", "year")


def _set(target: object, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockDeclaration:
    """One execution at a time per key. `rollback_wait=None` becomes `ttl`; `max_wait=None` parks as long as it takes."""

    primitive: ClassVar[str] = "lock"
    keys: tuple[Key, ...]
    ttl: float = 60.0
    wait: float = 0.0
    auto_extend: bool = True
    rollback_wait: float | None = None
    on_lost: str = "fail"
    max_wait: float | None = None
    on_contention: str = "park"
    priority: int = 0
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        place = "with_lock"
        if not self.keys:
            raise DefinitionError('with_lock(): needs at least one key, as in with_lock("acct:{account_id}").')
        _set(self, keys=tuple(parse_key(place, key) for key in self.keys))
        _check_hold(place, self)
        rollback_wait = options.optional_seconds(place, "rollback_wait", self.rollback_wait)
        _set(self, rollback_wait=self.ttl if rollback_wait is None else rollback_wait)
        _set(self, max_wait=options.optional_seconds(place, "max_wait", self.max_wait, above=True))
        if self.max_wait is not None and self.on_contention != "park":
            raise options.bad(place, "max_wait", self.max_wait, _never("parks", self.on_contention))
        options.choice(place, "on_lost", self.on_lost, ON_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemaphoreDeclaration:
    """At most `limit` executions at a time per key."""

    primitive: ClassVar[str] = "semaphore"
    key: Key
    limit: int
    ttl: float = 60.0
    wait: float = 0.0
    auto_extend: bool = True
    rollback_wait: float | None = 60.0
    on_contention: str = "park"
    priority: int = 0
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        place = "with_semaphore"
        _set(self, key=parse_key(place, self.key))
        options.count(place, "limit", self.limit)
        _check_hold(place, self)
        _set(self, rollback_wait=options.seconds(place, "rollback_wait", self.rollback_wait))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The one key, in the shape that all declarations share."""
        return (self.key,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitDeclaration:
    """At most `limit` starts per window. `windows` holds (limit, seconds), shortest first; empty for a named limit."""

    primitive: ClassVar[str] = "rate_limit"
    key: Key | None = None
    windows: tuple[tuple[int, float], ...] = ()
    name: str | None = None
    algorithm: str | None = None
    on_contention: str = "park"

    def __post_init__(self) -> None:
        place = "with_rate_limit"
        if self.key is not None:
            _set(self, key=parse_key(place, self.key))
        options.choice(place, "on_contention", self.on_contention, ON_RATE_CONTENTION)
        if self.name is None:
            _set(self, algorithm=self.algorithm or "fixed_window")
        if self.algorithm is not None:
            options.choice(place, "algorithm", self.algorithm, ALGORITHMS)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The key, if there is one of its own."""
        return () if self.key is None else (self.key,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodDeclaration:
    """Once per bucket of the calendar. `every`: a bucket's name, or its length in seconds.

    `keep_mark`: a bucket stays marked when what succeeded in it is undone.
    """

    primitive: ClassVar[str] = "period"
    key: Key
    every: str | float = "day"
    timezone: str | None = None
    keep_mark: bool = False

    def __post_init__(self) -> None:
        place = "with_period"
        options.flag(place, "keep_mark", self.keep_mark)
        _set(self, key=parse_key(place, self.key))
        if isinstance(self.every, str):
            _check_bucket(place, self.every)
        else:
            _set(self, every=options.seconds(place, "every", self.every, minimum=1))
            if self.timezone is not None:
                rule = f"means nothing with every={self.every:g}: a length in seconds counts from 1970 in UTC. Leave it out."
                raise options.bad(place, "timezone", self.timezone, rule)
        _set(self, timezone=_timezone(place, self.timezone))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The one key, in the shape that all declarations share."""
        return (self.key,)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedLockDeclaration:
    """One at a time per key, in order of arrival. `strict`: a failed position makes those behind it skip.

    `chain_ttl`: seconds for which they do so even when the line has drained meanwhile; None: a drained line starts afresh.
    """

    primitive: ClassVar[str] = "ordered_lock"
    key: Key
    strict: bool = True
    poison_pill_timeout: float = 600.0
    ttl: float = 86400.0
    chain_ttl: float | None = None

    def __post_init__(self) -> None:
        place = "with_ordered_lock"
        _set(self, key=parse_key(place, self.key))
        options.flag(place, "strict", self.strict)
        pill = options.seconds(place, "poison_pill_timeout", self.poison_pill_timeout, minimum=options.MIN_TTL)
        ttl = options.seconds(place, "ttl", self.ttl, minimum=options.MIN_TTL)
        if ttl < pill:
            rule = f"is how long the line itself is kept, and must not be shorter than poison_pill_timeout ({pill:g})."
            raise options.bad(place, "ttl", self.ttl, rule)
        chain_ttl = options.optional_seconds(place, "chain_ttl", self.chain_ttl, minimum=options.MIN_TTL)
        if chain_ttl is not None and not self.strict:
            rule = "is for how long a failure stops those behind it, which strict=False lets run: leave one of the two out."
            raise options.bad(place, "chain_ttl", self.chain_ttl, rule)
        _set(self, poison_pill_timeout=pill, ttl=ttl, chain_ttl=chain_ttl)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The one key, in the shape that all declarations share."""
        return (self.key,)


Declaration: TypeAlias = (
    LockDeclaration | SemaphoreDeclaration | RateLimitDeclaration | PeriodDeclaration | OrderedLockDeclaration
)

# The order in which a step meets them; `coordination` mappings are in this order, whatever order they were written in.
PRIMITIVES = ("ordered_lock", "period", "rate_limit", "lock", "semaphore")


def coordination_of(declarations: Iterable[Declaration]) -> Mapping[str, Declaration]:
    """A read-only mapping by primitive; a later declaration of a primitive replaces an earlier one."""
    found = {declaration.primitive: declaration for declaration in declarations}
    return MappingProxyType({primitive: found[primitive] for primitive in PRIMITIVES if primitive in found})


NO_COORDINATION: Mapping[str, Declaration] = coordination_of(())


def names_read(coordination: Mapping[str, Declaration]) -> frozenset[str]:
    """Every argument name that a key of these reads."""
    return frozenset(name for declaration in coordination.values() for key in declaration.keys for name in key.names)


def has_callable_key(coordination: Mapping[str, Declaration]) -> bool:
    """Whether some key is a function, which may read any argument."""
    return any(callable(key.template) for declaration in coordination.values() for key in declaration.keys)


def check_keys(
    place: str, coordination: Mapping[str, Declaration], types: Mapping[str, Any], what: str = "input"
) -> None:
    """Refuse a placeholder that the target has no input for, or one whose values never have one text in all processes.

    `place` names the target in the message; `types` has the type of each input or argument (`Any` where it is not known).
    """
    for declaration in coordination.values():
        for key in declaration.keys:
            written = f"{place}: with_{declaration.primitive}({key.template!r}) reads"
            for name in sorted(key.names - types.keys()):
                raise DefinitionError(f"{written} {name!r}, and there is no such {what}.{did_you_mean(name, types)}")
            for name in key.wholes():
                if unstable := unstable_type(types[name]):
                    raise DefinitionError(
                        f"{written} {name!r} whole, which is or has in it a {unstable}, whose text is another in every process; "
                        f"name one value in it, as in {{{name}[id]}}, or give a function that returns the key."
                    )


def _check_hold(place: str, hold: LockDeclaration | SemaphoreDeclaration) -> None:
    _set(hold, ttl=options.seconds(place, "ttl", hold.ttl, minimum=options.MIN_TTL))
    _set(hold, wait=options.seconds(place, "wait", hold.wait))
    options.flag(place, "auto_extend", hold.auto_extend)
    options.choice(place, "on_contention", hold.on_contention, ON_CONTENTION)
    options.priority(place, "priority", hold.priority)
    if hold.max_waiting is not None:
        options.count(place, "max_waiting", hold.max_waiting)
    for option, default in (("max_waiting", None), ("priority", 0)):
        value = getattr(hold, option)
        if value != default and hold.on_contention in ("fail", "skip"):
            raise options.bad(place, option, value, _never("stands in line", hold.on_contention))


def _never(what: str, on_contention: str) -> str:
    return f"means nothing with on_contention={on_contention!r}, which never {what}. Leave one of the two out."


def _check_bucket(place: str, every: str) -> None:
    if every not in BUCKETS:
        words = ", ".join(BUCKETS)
        rule = f"must be one of {words}, or a number of seconds.{closest(every, BUCKETS)}"
        raise options.bad(place, "every", every, rule)


def _timezone(place: str, value: Any) -> str | None:
    if value is None:
        return None
    name = value.key if isinstance(value, zoneinfo.ZoneInfo) else value
    if not isinstance(name, str):
        raise options.bad(place, "timezone", value, 'must be the name of a time zone, such as "Europe/Berlin".')
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        hint = closest(name, zoneinfo.available_timezones()) or ' Use a name such as "Europe/Berlin".'
        raise options.bad(place, "timezone", name, f"is not a time zone known here.{hint}") from None
    return name
