"""What is wrong with a key in Redis that is not what coordination wrote there, and the rebuilding of what can be rebuilt.

A script that meets a key of another type, or a value it cannot read, ends with an error of the server that names no key; a
reply may lack what belongs in it. Both are looked into here, in a few round trips that only this case costs. What is only a
hint (an index of live keys, the record of what an owner waits for, the seat of the sweep's leader) is made anew; anything
else is told as `CoordinationDamaged`, and nothing runs unprotected meanwhile.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from redis import exceptions

from reactor_coord.coordination.keys import decode, described, to_bytes, to_text, type_of
from reactor_coord.errors import CoordinationDamaged

logger = logging.getLogger("reactor_coord.coordination")


class Redis(Protocol):
    """What is needed of a connection."""

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send plain commands as one pipeline; raises `CoordinationUnavailable` when Redis does not answer."""

    def scan(self, pattern: str) -> Iterator[bytes]:
        """Every name that matches."""


REBUILT = frozenset({"index", "waits", "sweep"})
"""Parts that can be made anew from the others, or are of no harm when they are forgotten."""

ILLEGIBLE = (ValueError, KeyError, TypeError, IndexError, AttributeError)
"""What reading a reply raises that lacks something, or has it in another form."""

_OTHER_TROUBLE = re.compile(
    r"\b(OOM|READONLY|MISCONF|NOREPLICAS|NOPERM|NOAUTH|LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|NOSCRIPT)\b"
)
_OUR_TROUBLE = re.compile(r"\bWRONGTYPE\b|^DAMAGED\b|user_script:\d+|not an integer|not a valid float")

READ_AT_MOST = 2000
"""Fields of one hash that are looked through."""

FIELDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("lock", "hold"): frozenset({"owner", "claim", "state", "fence", "since", "count", "info"}),
}
"""Hashes with fixed fields, by primitive and part."""

WAITER = frozenset({"ticket", "lapses", "owner", "wake", "inbox", "priority", "info"})

ENTRIES: Mapping[tuple[str, str], frozenset[str]] = {
    ("lock", "waiters"): WAITER,
    ("semaphore", "waiters"): WAITER,
    ("semaphore", "hold"): frozenset({"fence", "claim", "state", "since", "info", "tokens"}),
    ("ordered_lock", "line"): frozenset({"who", "wake", "info", "state", "claim", "alive", "due", "timeout"}),
    ("period", "marks"): frozenset({"at", "ends_at"}),
}
"""Hashes of JSON, with what each entry has; of a semaphore's holds each is a list of such."""

NUMBER = re.compile(r"-?\d+")

TEXTS: Mapping[tuple[str, str], re.Pattern[str]] = {
    ("lock", "meta"): NUMBER,
    ("semaphore", "meta"): NUMBER,
    ("semaphore", "leases"): re.compile(r"\d+\|.*", re.DOTALL),
    ("ordered_lock", "ids"): NUMBER,
    ("ordered_lock", "state"): re.compile(r".*", re.DOTALL),
    ("rate_limit", "plans"): re.compile(r"\d+(:.*)?", re.DOTALL),
}
"""What each value of a string or a hash, or each member of a set, looks like."""

NUMBERED: Mapping[tuple[str, str], frozenset[str]] = {
    ("ordered_lock", "state"): frozenset({"epoch", "last", "done", "failed", "failed_until"}),
}
"""Fields that are numbers, in a hash where others are not."""


def is_damage(error: BaseException) -> bool:
    """Whether the server's error is about what a key holds, and not about the server.

    The client has classes of its own for the server's troubles (full, a replica, loading, no permission).
    """
    if type(error) is not exceptions.ResponseError:
        return False
    text = str(error)
    return bool(_OUR_TROUBLE.search(text)) and not _OTHER_TROUBLE.search(text)


def examine(redis: Redis, names: Sequence[bytes], more: Sequence[Any], error: BaseException) -> CoordinationDamaged:
    """Find out which of these keys is meant; `more` are arguments, which may name an owner whose record is meant."""
    wanted = list(dict.fromkeys([*names, *_records(names, more)]))
    kinds = [to_text(kind) for kind in redis.ask(*(("TYPE", name) for name in wanted))] if wanted else []
    for name, kind in zip(wanted, kinds, strict=True):
        expected = type_of(name)
        if expected and kind not in ("none", expected):
            return _damaged(name, f"it is a {kind}, where a {expected} belongs")
    for name, kind in zip(wanted, kinds, strict=True):
        problem = _problem_in(redis, name) if kind != "none" else ""
        if problem:
            return _damaged(name, problem)
    known = next((name for name in wanted if described(name)[3] not in REBUILT), b"")
    return _damaged(known, f"the server could not work on it ({error})")


def of_reply(redis: Redis, names: Sequence[bytes], error: BaseException) -> CoordinationDamaged:
    """Find out which of these keys a reply comes from that cannot be read."""
    return examine(redis, names, (), ValueError(f"its reply cannot be read: {type(error).__name__}: {error}"))


@contextmanager
def told(redis: Redis, names: Callable[[], Sequence[bytes]]) -> Iterator[None]:
    """Tell what cannot be read inside the block as damage of one of these keys."""
    try:
        yield
    except ILLEGIBLE as error:
        raise of_reply(redis, names(), error) from error


def mend(redis: Redis, damaged: CoordinationDamaged) -> bool:
    """Make a key anew that can be; False when it is for people to repair."""
    name = to_bytes(damaged.redis_key)
    prefix, primitive, key, part = described(name)
    if part not in REBUILT:
        return False
    logger.warning("event=reactor_coord.key_rebuilt redis_key=%s reason=%s", damaged.redis_key, damaged.problem)
    redis.ask(("DEL", name))
    if part == "index" and not key:
        _fill(redis, name, f"{prefix}:{{{primitive}:")
    return True


def _fill(redis: Redis, index: bytes, begin: str) -> None:
    """List the live keys of a primitive again; those whose text was cut for its length come back with their next change."""
    for name in redis.scan(f"{begin}*"):
        *_, key, part = described(name)
        raw = decode(key)
        if raw is not None and part in _LISTED_BY:
            left = int(redis.ask(("PTTL", name))[0]) if part in _LISTED_UNTIL else 0
            redis.ask(("ZADD", index, "NX", int(time.time() * 1000) + max(left, 0), to_bytes(raw)))


_LISTED_UNTIL = frozenset({"hold", "marks", "state"})
_LISTED_BY = _LISTED_UNTIL | {"line"}


def _records(names: Sequence[bytes], more: Iterable[Any]) -> list[bytes]:
    """Records of owners that a script may have written beside its keys."""
    prefix = next((described(name)[0] for name in names), "")
    owners = [to_text(each) for each in more if isinstance(each, (str, bytes)) and 0 < len(each) <= 300]
    return [to_bytes(f"{prefix}:waits:{owner}") for owner in owners] if prefix else []


def _problem_in(redis: Redis, name: bytes) -> str:
    """What a value of the right type lacks, or has in another form; nothing when all that was looked through is there."""
    _, primitive, _, part = described(name)
    where = (primitive, part)
    if where in FIELDS:
        wanted = sorted(FIELDS[where])
        found = redis.ask(("HMGET", name, *wanted))[0]
        lacking = [each for each, value in zip(wanted, found, strict=True) if value is None]
        return f"it lacks {', '.join(lacking)}" if lacking else ""
    for field, value in _values(redis, name) if where in ENTRIES or where in TEXTS else ():
        problem = _problem_of(where, field, value)
        if problem:
            return f"its entry {field!r} {problem}" if field else f"it {problem}"
    return ""


def _values(redis: Redis, name: bytes) -> Iterator[tuple[str, Any]]:
    """Field and value of a hash, the members of a sorted set, the value of a string without a field; a bounded number."""
    kind = type_of(name)
    command = {"string": ("GET", name), "zset": ("ZRANGE", name, 0, READ_AT_MOST - 1), "hash": ("HGETALL", name)}[kind]
    packed = redis.ask(command)[0]
    if kind == "string":
        yield "", packed
    elif kind == "zset":
        yield from ((_text(member), member) for member in packed)
    else:
        pairs = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
        yield from ((_text(field), value) for field, value in itertools.islice(pairs, READ_AT_MOST))


def _problem_of(where: tuple[str, str], field: str, value: Any) -> str:
    if where in ENTRIES:
        return _problem_of_entry(value, ENTRIES[where], is_list=where == ("semaphore", "hold"))
    wanted = NUMBER if field in NUMBERED.get(where, ()) else TEXTS[where]
    return "" if wanted.fullmatch(_text(value)) else f"is {_text(value)[:100]!r}"


def _problem_of_entry(value: Any, wanted: frozenset[str], *, is_list: bool) -> str:
    try:
        entry = json.loads(to_text(value))
    except ValueError:
        return "is no JSON"
    if isinstance(entry, list) is not is_list:
        return f"is {'no' if is_list else 'a'} list"
    for each in entry if is_list else [entry]:
        lacking = sorted(wanted - set(each)) if isinstance(each, dict) else sorted(wanted)
        if lacking:
            return f"lacks {', '.join(lacking)}"
    return ""


def _damaged(name: bytes, problem: str) -> CoordinationDamaged:
    _, primitive, key, _ = described(name)
    return CoordinationDamaged(
        redis_key=_text(name), problem=problem, primitive=primitive or None, key=decode(key) or key or None
    )


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
