"""The process's own `Locks`, built from the project's settings when first asked for, and anew when those change."""

from __future__ import annotations

import threading
from typing import Any

from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names
from reactor_coord.coordination.lock import Locks

_lock = threading.Lock()
_locks: list[Locks] = []
_listening: list[bool] = []


def locks() -> Locks:
    """The locks of `REACTOR_COORD` (`REDIS_ALIAS`, `KEY_PREFIX`, `HANDOFF_GRACE`): one object for the whole process."""
    if _locks:
        return _locks[0]
    with _lock:
        if not _locks:
            _locks.append(_build())
        return _locks[0]


def _build() -> Locks:
    from django.core.signals import setting_changed

    from reactor_coord import conf

    if not _listening:
        setting_changed.connect(_on_setting_changed, dispatch_uid="reactor_coord.coordination")
        _listening.append(True)
    found = conf.settings()
    return Locks(Connection(found.REDIS_ALIAS), Names(found.KEY_PREFIX), handoff_grace=found.HANDOFF_GRACE)


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    if setting in {"REACTOR_COORD", "CACHES"}:
        with _lock:
            _locks.clear()
