"""Which of the two databases the executions are in now: PostgreSQL, unless a row chooses the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_chosen = ["default"]


class Router:
    """Sends everything where `use` says."""

    def db_for_read(self, model: type, **hints: Any) -> str:
        """The chosen one."""
        return _chosen[-1]

    def db_for_write(self, model: type, **hints: Any) -> str:
        """The chosen one."""
        return _chosen[-1]

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool:
        """Everything is in one database at a time."""
        return True


@contextlib.contextmanager
def use(alias: str) -> Iterator[None]:
    """Choose a database for the block."""
    _chosen.append(alias)
    try:
        yield
    finally:
        _chosen.pop()
