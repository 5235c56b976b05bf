"""`DATABASE_URL` is understood, or refused with what was expected."""

from __future__ import annotations

import pytest

from demo_project import databases, place


def test_postgres_with_all_its_parts() -> None:
    assert databases.from_url("postgres://us%40er:p%2Fw@db.example:5433/name?sslmode=require") == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "name",
        "USER": "us@er",
        "PASSWORD": "p/w",
        "HOST": "db.example",
        "PORT": "5433",
        "OPTIONS": {"sslmode": "require"},
    }


def test_postgres_over_a_socket() -> None:
    assert databases.from_url("postgresql:///name?host=/run/postgresql")["HOST"] == "/run/postgresql"


@pytest.mark.parametrize(
    ("url", "name"), [("sqlite:///a.db", str(place.BASE_DIR / "a.db")), ("sqlite:////tmp/a.db", "/tmp/a.db")]
)
def test_sqlite_queues_its_writers(url: str, name: str) -> None:
    found = databases.from_url(url)
    assert found["NAME"] == name
    assert found["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize("url", ["mysql://u@h/n", "sqlite://", "nonsense"])
def test_anything_else_is_refused_by_name(url: str) -> None:
    with pytest.raises(ValueError, match="DATABASE_URL"):
        databases.from_url(url)
