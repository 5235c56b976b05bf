"""`DATABASE_URL` as Django wants it, without a dependency for it. Imports nothing of Django: settings use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from demo_project import place

ENGINES = {
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
}


def sqlite(path: Path | str) -> dict[str, Any]:
    """SQLite as several processes need it: readers beside a writer (WAL), and a writer that queues from its first statement.

    Without `IMMEDIATE` a transaction that reads and then writes fails at once with "database is locked" when another
    wrote in between; with it, it waits its turn, up to `timeout` seconds.
    """
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def from_url(url: str) -> dict[str, Any]:
    """One entry of `DATABASES`: `sqlite:///beside-manage-py.db`, `sqlite:////absolute.db`, `postgres://user:password@host:5432/name`.

    The query of the address becomes `OPTIONS` (`?sslmode=require`; `?host=/run/postgresql` for a socket). Raises
    ValueError, saying what was expected, for anything else.
    """
    parts = urlsplit(url)
    name = unquote(parts.path[1:])
    if parts.scheme == "sqlite":
        if not name:
            raise ValueError("DATABASE_URL names no file: write sqlite:///demo.sqlite3 or sqlite:////tmp/demo.sqlite3")
        return sqlite(place.BASE_DIR / name)
    if parts.scheme not in ENGINES:
        raise ValueError(f"DATABASE_URL begins with {parts.scheme!r}: this project knows sqlite and postgres")
    options = dict(parse_qsl(parts.query))
    socket_or_host = options.pop("host", None)
    return {
        "ENGINE": ENGINES[parts.scheme],
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": socket_or_host or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": options,
    }
