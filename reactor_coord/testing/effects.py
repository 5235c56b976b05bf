"""The effects of one thread, each told just before it happens: what a process that dies may or may not have done.

    effects.watch(tell)    # from now on: tell("redis", "take lock:acct:1"), tell("commit", "UPDATE execution"), ...

An effect is what outlives the process: a row written (`row` inside a transaction; `commit` for a statement that is its own
transaction, and for the end of one), a Redis command or script (`redis`), a message (`message`), and each side of a body, a
compensation and an undo (`body`). A process that dies where it is told of an effect has not had it, and has had all before.

Only the thread that called `watch` is told of: what keepers do by time has no number. Nothing is taken back; this is for a
process that ends soon.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from reactor_coord import probes

Tell = Callable[[str, str], None]
"""Called with the kind of an effect (`row`, `commit`, `redis`, `message`, `body`) and a name that a person can read."""

SIDES = {
    "body.before": "a body is about to begin",
    "body.after": "a body has returned",
    "rollback.before_undo": "a cleanup is about to begin",
    "rollback.after_undo_body": "a cleanup has returned",
}
"""The fault points at the sides of what authors write."""

_teller: list[Tell] = []

_WRITES = re.compile(r'(?<!DO )(INSERT INTO|UPDATE|DELETE FROM)\s+"?(\w+)"?', re.IGNORECASE)
_TAG = re.compile(r"\{([^}]*)\}")


def watch(tell: Tell) -> None:
    """Have `tell` called before each effect of this thread from now on, in the thread itself."""
    thread = threading.get_ident()

    def tell_own(kind: str, name: str) -> None:
        if threading.get_ident() == thread:
            tell(kind, name)

    if not _teller:
        _watch_database()
        _watch_redis()
        _watch_messages()
        _watch_sides()
    _teller[:] = [tell_own]


def reached(kind: str, name: str) -> None:
    """Tell of an effect of one's own, such as a line that a test's body writes to a file."""
    if _teller:
        _teller[0](kind, name)


# ---- the database


def _watch_database() -> None:
    from django.db import connections
    from django.db.backends.signals import connection_created

    def on_connect(connection: Any, **_: Any) -> None:
        if _statement not in connection.execute_wrappers:
            connection.execute_wrappers.append(_statement)
            connection.commit = _told_before("commit", "the transaction", connection.commit)

    connection_created.connect(on_connect, weak=False)
    for connection in connections.all(initialized_only=True):
        on_connect(connection)


def _statement(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    written = _written(str(sql))
    if written:
        reached("row" if context["connection"].in_atomic_block else "commit", written)
    return execute(sql, params, many, context)


def _written(sql: str) -> str:
    """Describe what a statement writes; empty for one that only reads."""
    found = _WRITES.findall(sql)
    if not found or sql.lstrip()[:6].upper() == "SELECT":
        return ""
    return ", ".join(f"{verb.split()[0].upper()} {table.removeprefix('reactor_coord_')}" for verb, table in found)


def _told_before(kind: str, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def told(*args: Any, **options: Any) -> Any:
        reached(kind, name)
        return act(*args, **options)

    return told


# ---- Redis


def _watch_redis() -> None:
    """At the one door to it; the methods are laid around, so that the product pays nothing for being watched."""
    from reactor_coord.coordination.connection import Blocking, Connection

    run, commands, pop = Connection.run, Connection.commands, Blocking.pop

    def told_run(self: Connection, script: Any, keys: Sequence[bytes], args: Sequence[Any], *more: Any) -> Any:
        reached("redis", f"{_operation(script.name, args)} {_keys(keys)}")
        return run(self, script, keys, args, *more)

    def told_commands(self: Connection, *asked: Any) -> Any:
        if asked:
            reached("redis", " ".join(dict.fromkeys(str(each[0]) for each in asked)))
        return commands(self, *asked)

    def told_pop(self: Blocking, inbox: bytes, seconds: float) -> bool:
        reached("redis", "BLPOP")
        return pop(self, inbox, seconds)

    around: list[tuple[type, str, Callable[..., Any]]] = [
        (Connection, "run", told_run), (Connection, "commands", told_commands), (Blocking, "pop", told_pop)
    ]  # fmt: skip
    for owner, name, method in around:
        setattr(owner, name, method)


def _operation(name: str, args: Sequence[Any]) -> str:
    """Name a script; one that has modes with its mode."""
    mode = args[0] if args else ""
    return f"{name} {mode}" if isinstance(mode, str) and mode.isalpha() else name


def _keys(names: Sequence[bytes]) -> str:
    """Name the resources, once each: `lock:acct:1, semaphore:desk`."""
    return ", ".join(dict.fromkeys(tag for name in names for tag in _TAG.findall(bytes(name).decode(errors="replace"))))


# ---- messages and bodies


def _watch_messages() -> None:
    from celery import signals

    def on_publish(body: Any = None, **_: Any) -> None:
        arguments = body[0] if isinstance(body, (list, tuple)) and body else ()
        reached("message", f"to {', '.join(map(str, arguments))}")

    signals.before_task_publish.connect(on_publish, weak=False)


def _watch_sides() -> None:
    before = probes.listener

    def listener(point: str) -> None:
        if before is not None:
            before(point)
        if point in SIDES:
            reached("body", SIDES[point])

    probes.listener = listener
