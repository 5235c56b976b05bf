"""The port through which a message leaves: a hint that a row may be ready, never more.

A broker that cannot be reached loses no work: the row is written, and the sweep sends the message again.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from reactor_coord import conf, probes

logger = logging.getLogger("reactor_coord")


class Dispatcher(Protocol):
    """What the `DISPATCHER` setting names: a class without arguments."""

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None:
        """Have a worker look at the execution after `countdown` seconds (a few at most).

        `is_start`: it is the first message of an execution that holds nothing. Where the broker can, any other comes
        before it: one that is woken may have a key reserved, which is lost on others while its message waits.
        """


@lru_cache(maxsize=1)
def dispatcher() -> Dispatcher:
    """Return this process's dispatcher. Raises `ImproperlyConfigured` when the setting names something else."""
    path = conf.settings().DISPATCHER
    named = import_string(path)
    if problem := dispatcher_problem(named):
        raise ImproperlyConfigured(f"{conf.SETTING}['DISPATCHER'] names {path!r}, which {problem}.")
    return cast("Dispatcher", named())


def dispatcher_problem(named: Any) -> str:
    """What is wrong with what the setting names; empty for a class that can be made and sends."""
    send_method = getattr(named, "send", None)
    if not isinstance(named, type) or not callable(send_method):
        return "is no class with a method send(execution_id, queue, countdown, *, is_start=False)"
    try:
        inspect.signature(named).bind()
    except TypeError as error:
        return f"cannot be made without arguments: {error}"
    try:
        inspect.signature(send_method).bind(None, "id", None, 0.0, is_start=True)
    except TypeError as error:
        return f"has a send(...) that cannot be called as (execution_id, queue, countdown, *, is_start): {error}"
    return ""


def _forget_dispatcher(*, setting: str, **_: object) -> None:
    if setting == "REACTOR_COORD":
        dispatcher.cache_clear()


setting_changed.connect(_forget_dispatcher)


def send(execution_id: str, queue: str | None = None, countdown: float = 0.0, *, is_start: bool = False) -> bool:
    """Send the message; False, with a log line, when the broker would not take it."""
    try:
        dispatcher().send(execution_id, queue or conf.settings().QUEUE, countdown, is_start=is_start)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises means the same
        logger.warning(
            "event=reactor_coord.dispatch_failed execution=%s error=%s remedy=%s",
            execution_id,
            type(error).__name__,
            "the sweep sends it again",
        )
        return False
    return True


def wake_name(execution_id: str, queue: str) -> str:
    """Return what a waiter leaves in a line so that whoever releases can send its message without a query."""
    return f"{execution_id}@{queue}" if queue else execution_id


def wake(names: Iterable[str]) -> None:
    """Send the messages of waiters that got a grant; an empty name is nobody's: a line that had no next."""
    for name in filter(None, names):
        execution_id, _, queue = name.partition("@")
        probes.reached("wake.before_send")
        send(execution_id, queue or None)
