"""One operation as it would be sent, so that it can be sent alone or with others in one round trip.

A primitive builds an `Ask`; `alone` sends it by itself, `together` several as one script. So is whatever a place declares
taken in one round trip, and given back in one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from reactor_coord.coordination import damage
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.scripts import Script, chain
from reactor_coord.errors import NO_ANSWER

T = TypeVar("T")


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A script with what it is asked. Where others depend on it, its reply begins with 1 when it passed."""

    primitive: str
    key: str
    script: Script
    keys: Sequence[bytes]
    args: Sequence[Argument]
    read: Callable[[Any], T]
    """Make an answer of the server's reply."""
    beside: Callable[[], None] = _nothing
    """What is to be written by itself in a cluster, where the script does not reach it."""
    abandon: Callable[[], None] = _nothing
    """Have in the background taken back what the server may have given, when the reply cannot be relied on."""
    good_for: float = math.inf
    """Seconds after which a reply is too late to be relied on."""


def alone(connection: Connection, ask: Ask[T], timeout: float | None = None) -> T:
    """Its answer, in one round trip."""
    try:
        reply = connection.run(ask.script, ask.keys, ask.args, timeout)
    except NO_ANSWER as error:
        if getattr(error, "sent", True):
            ask.abandon()
        raise
    if connection.is_cluster:
        ask.beside()
    return read(connection, ask, reply)


def read(connection: Connection, ask: Ask[T], reply: Any) -> T:
    """Make the answer of a reply; one that cannot be read comes from a key that is not what was written there."""
    with damage.told(connection, lambda: ask.keys):
        return ask.read(reply)


def together(connection: Connection, asks: Sequence[Ask[Any]], *, until_refused: bool) -> list[Any] | None:
    """Answers of all, in order, in one round trip; with `until_refused`, of those up to the first that did not pass.

    None: they are to be sent alone, for the answers came too late, or one script does not reach all the keys of a cluster.
    What a late answer gave is taken back, and so it is before `CoordinationUnavailable` or `CoordinationDamaged` is raised.
    """
    if connection.is_cluster:
        return None
    script = chain(tuple(ask.script.name for ask in asks))
    keys = [key for ask in asks for key in ask.keys]
    args: list[Argument] = [int(until_refused)]
    for ask in asks:
        args += [len(ask.keys), len(ask.args), *ask.args]
    asked_at = time.monotonic()
    try:
        replies = connection.run(script, keys, args)
        answers = [read(connection, ask, reply) for ask, reply in zip(asks, replies, strict=False)]
    except BaseException as error:
        if getattr(error, "sent", True):
            _abandon(asks if isinstance(error, NO_ANSWER) else _leases(asks))
        if isinstance(error, NO_ANSWER):
            error.fill(primitive=asks[0].primitive, key=asks[0].key)
        raise
    if time.monotonic() - asked_at >= min(ask.good_for for ask in asks):
        _abandon(_leases(asks))
        return None
    return answers


def _leases(asks: Sequence[Ask[Any]]) -> list[Ask[Any]]:
    """Those that nobody finds again who asks anew, or comes again: a turn is kept."""
    return [ask for ask in asks if ask.good_for < math.inf]


def _abandon(asks: Sequence[Ask[Any]]) -> None:
    for ask in asks:
        ask.abandon()
