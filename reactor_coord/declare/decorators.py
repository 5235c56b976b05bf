"""The five `with_*` as authors write them: above a step class, an inline step, a reactor; or as a value in `coordination=`.

One vocabulary, one object: it carries a checked declaration and hands it to whatever it is put on.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from reactor_coord.declare import options
from reactor_coord.declare.coordination import (
    WINDOWS,
    Declaration,
    LockDeclaration,
    OrderedLockDeclaration,
    PeriodDeclaration,
    RateLimitDeclaration,
    SemaphoreDeclaration,
    coordination_of,
)
from reactor_coord.declare.keys import Template, parse_key
from reactor_coord.declare.keywords import checked_call
from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import closest
from reactor_coord.errors import DefinitionError

Seconds: TypeAlias = "float | dt.timedelta"
Target = TypeVar("Target")
MARK = "__reactor_coord__"


class Coordinated(Protocol):
    """What takes declarations itself: step classes, reactor classes, step nodes."""

    def coordinate(self, declaration: Declaration) -> None: ...


@dataclass(frozen=True, slots=True)
class Coordination:
    """A declaration that can be put on a target, which it returns as it was."""

    declaration: Declaration

    def __call__(self, target: Target, /) -> Target:
        if hasattr(target, "coordinate"):
            cast(Coordinated, target).coordinate(self.declaration)
        elif callable(target) and not isinstance(target, type):
            _mark(target, self.declaration)
        else:
            raise DefinitionError(
                f"with_{self.declaration.primitive} was put on {shown(target)}; "
                "it goes on a Step class, on an inline step's function, on a Reactor class, or into coordination=[...]."
            )
        return target


@checked_call
def with_lock(
    *keys: Template,
    ttl: Seconds = 60,
    wait: Seconds = 0,
    auto_extend: bool = True,
    rollback_wait: Seconds | None = None,
    on_lost: str = "fail",
    max_wait: Seconds | None = None,
    on_contention: str = "park",
    priority: int = 0,
    max_waiting: int | None = None,
) -> Coordination:
    """One execution at a time per key; several keys are taken all or none.

    `ttl`: seconds until the hold of a dead process is free (0.1 at least); a living one keeps it by itself unless
    `auto_extend=False`. `wait`: seconds that `run` and `call` wait. `rollback_wait`: the same for undo and compensate
    (`None`: `ttl`). `on_lost`: "fail" or "warn" when the hold ran out under the body. `max_wait`: longest time parked.
    `on_contention`: in a worker "park" (step aside), "wait" (`wait` seconds, then fail), "fail" or "skip" at once.
    `priority`: higher goes first in the line. `max_waiting`: longest line this joins.
    """
    return Coordination(
        LockDeclaration(
            keys=tuple(parse_key("with_lock", key) for key in keys),
            ttl=cast(float, ttl),
            wait=cast(float, wait),
            auto_extend=auto_extend,
            rollback_wait=cast("float | None", rollback_wait),
            on_lost=on_lost,
            max_wait=cast("float | None", max_wait),
            on_contention=on_contention,
            priority=priority,
            max_waiting=max_waiting,
        )
    )


@checked_call
def with_semaphore(
    key: Template,
    *,
    limit: int,
    ttl: Seconds = 60,
    wait: Seconds = 0,
    auto_extend: bool = True,
    rollback_wait: Seconds = 60,
    on_contention: str = "park",
    priority: int = 0,
    max_waiting: int | None = None,
) -> Coordination:
    """At most `limit` executions at a time per key. The other options are `with_lock`'s."""
    return Coordination(
        SemaphoreDeclaration(
            key=parse_key("with_semaphore", key),
            limit=limit,
            ttl=cast(float, ttl),
            wait=cast(float, wait),
            auto_extend=auto_extend,
            rollback_wait=cast(float, rollback_wait),
            on_contention=on_contention,
            priority=priority,
            max_waiting=max_waiting,
        )
    )


@checked_call
def with_rate_limit(
    key: Template | None = None,
    *,
    limit: int | None = None,
    period: Seconds | str | None = None,
    limits: Mapping[Any, int] | None = None,
    name: str | None = None,
    algorithm: str | None = None,
    on_contention: str = "park",
) -> Coordination:
    """At most so many starts per window of time.

    Either `limit` per `period` (seconds, a `timedelta`, or "second", "minute", "hour", "day"), or `limits` with several
    windows (`{"second": 3, "minute": 100}`), or the `name` of a limit in the settings' `RATE_LIMITS`. `algorithm`:
    "fixed_window" (default) or "sliding_window", which allows no burst over a boundary.
    """
    place = "with_rate_limit"
    _check_form(place, key, limit, period, limits, name, algorithm)
    windows = {} if name is not None else limits if limits is not None else {period: cast(int, limit)}
    return Coordination(
        RateLimitDeclaration(
            key=None if key is None else parse_key(place, key),
            windows=_windows(place, windows, "period" if limits is None else "limits"),
            name=name,
            algorithm=algorithm,
            on_contention=on_contention,
        )
    )


@checked_call
def with_period(
    key: Template,
    *,
    every: str | Seconds = "day",
    timezone: str | zoneinfo.ZoneInfo | None = None,
    keep_mark: bool = False,
) -> Coordination:
    """Once per calendar bucket: a second arrival skips the step, or halts the reactor.

    `every`: "minute", "hour", "day", "week", "month", "year", or a length in seconds (1 at least). `timezone`: the name
    of the zone whose calendar counts (`None`: Django's default one). A success that is undone gives its bucket free again;
    with `keep_mark=True` the bucket stays marked.
    """
    return Coordination(
        PeriodDeclaration(
            key=parse_key("with_period", key),
            every=cast("str | float", every),
            timezone=cast("str | None", timezone),
            keep_mark=keep_mark,
        )
    )


@checked_call
def with_ordered_lock(
    key: Template,
    *,
    strict: bool = True,
    poison_pill_timeout: Seconds = 600,
    ttl: Seconds = 86400,
    chain_ttl: Seconds | None = None,
) -> Coordination:
    """One at a time per key, in order: of arrival at a step, of enqueueing at a reactor.

    `strict`: when a position failed, those queued behind it skip; a drained line starts afresh. `chain_ttl`: seconds for which
    a failure counts though the line has drained. A `.retry()` of what failed that succeeds, or an operator's reset, heals
    the line. `poison_pill_timeout`: seconds without a sign of life after which a position is passed over. `ttl`: seconds
    that an idle line is remembered.
    """
    return Coordination(
        OrderedLockDeclaration(
            key=parse_key("with_ordered_lock", key),
            strict=strict,
            poison_pill_timeout=cast(float, poison_pill_timeout),
            ttl=cast(float, ttl),
            chain_ttl=cast("float | None", chain_ttl),
        )
    )


def check_in_time(cls: type[Any], declaration: Declaration, used_by: str = "") -> None:
    """Refuse a declaration on a class that others were built with: they would go on without it.

    `used_by`: the reactor that has it as a step, if one has.
    """
    after = f"{used_by} had been built with it" if used_by else ""
    for child in cls.__subclasses__():
        after = f"its subclass {child.__name__} had been made"
    if after:
        raise DefinitionError(
            f"with_{declaration.primitive} was put on {cls.__name__} after {after}, which would go on without it. "
            f"Write it as a decorator, directly above class {cls.__name__}."
        )


def merged(place: str, declared: Mapping[str, Declaration], declaration: Declaration) -> Mapping[str, Declaration]:
    """One more declaration on one target. Raises when it already has one of that primitive itself."""
    if declaration.primitive in declared:
        raise DefinitionError(
            f"{place}: with_{declaration.primitive} is declared twice on it. "
            "Keep one; a lock on several keys is one with_lock(key, key)."
        )
    return coordination_of((*declared.values(), declaration))


def declarations_in(place: str, value: Any) -> Mapping[str, Declaration]:
    """What `coordination=` was given: one `with_*(...)` or several of them."""
    found: Mapping[str, Declaration] = coordination_of(())
    for item in value if isinstance(value, Iterable) else (value,):
        if not isinstance(item, Coordination):
            raise DefinitionError(
                f"{place}: coordination takes with_lock(...) and its like in a list, not {shown(item)}."
            )
        found = merged(place, found, item.declaration)
    return found


def marked(function: Callable[..., Any]) -> Mapping[str, Declaration]:
    """What was declared on a function before it became a step."""
    found: Mapping[str, Declaration] = getattr(function, MARK, coordination_of(()))
    return found


def _mark(function: Callable[..., Any], declaration: Declaration) -> None:
    place = getattr(function, "__qualname__", repr(function))
    setattr(function, MARK, merged(place, marked(function), declaration))


def _check_form(place: str, key: Any, limit: Any, period: Any, limits: Any, name: Any, algorithm: Any) -> None:
    forms = [limit is not None or period is not None, limits is not None, name is not None]
    if sum(forms) != 1:
        raise DefinitionError(
            f"{place}(key={key!r}, limit={limit!r}, period={period!r}, limits={limits!r}, name={name!r}): give exactly one "
            "of limit= with period=, limits={...}, or name=."
        )
    if forms[0] and (limit is None or period is None):
        raise DefinitionError(
            f"{place}(limit={shown(limit)}, period={shown(period)}): limit and period go together; give both."
        )
    if name is None and key is None:
        raise DefinitionError(f'{place}(): needs a key, as in {place}("api:{{account_id}}", limit=10, period=60).')
    if name is not None and (not isinstance(name, str) or not name):
        raise options.bad(place, "name", name, "must be the name of a limit in the settings' RATE_LIMITS.")
    if name is not None and algorithm is not None:
        raise options.bad(place, "algorithm", algorithm, "belongs to the named limit: set it in RATE_LIMITS.")


def _windows(place: str, limits: Mapping[Any, int], option: str) -> tuple[tuple[int, float], ...]:
    if not isinstance(limits, Mapping):
        raise options.bad(place, "limits", limits, 'must map windows to counts, as in {"second": 3, "minute": 100}.')
    if option == "limits" and not limits:
        raise options.bad(place, "limits", limits, "names no window.")
    found: dict[float, int] = {}
    for window, limit in limits.items():
        length = _window(place, option, window)
        if length in found:
            raise options.bad(place, option, dict(limits), f"names the window of {length:g} s twice.")
        found[length] = options.count(place, "limit" if option == "period" else f"limits[{window!r}]", limit)
    return tuple((found[length], length) for length in sorted(found))


def _window(place: str, option: str, window: Any) -> float:
    if isinstance(window, str):
        if window not in WINDOWS:
            rule = f"must be seconds or one of {', '.join(WINDOWS)}.{closest(window, WINDOWS)}"
            raise options.bad(place, option, window, rule)
        return WINDOWS[window]
    return options.seconds(place, option, window, minimum=options.MIN_TTL)
