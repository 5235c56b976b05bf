"""Whether a transaction is open here: what is given back inside one is free before the work it protects is committed."""

from __future__ import annotations

from django.db import connections


def is_open() -> bool:
    """Whether any connection of this thread is in a transaction; those of Django's test cases do not count."""
    return any(_is_open(alias) for alias in connections)


def _is_open(alias: str) -> bool:
    blocks = getattr(connections[alias], "atomic_blocks", ())
    return any(not getattr(block, "_from_testcase", False) for block in blocks)
