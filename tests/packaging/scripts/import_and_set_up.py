"""Import the app, set Django up with it, and print what that started. Run by test_wheel.py in a fresh interpreter.

The audit hook sees every thread and every connection whoever asks for it; the addresses lead nowhere, so that an attempt
that was swallowed is seen all the same.
"""

from __future__ import annotations

import json
import sys
import threading

NOTED_EVENTS = {
    "_thread.start_new_thread",
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "sqlite3.connect",
    "subprocess.Popen",
}
noted: list[str] = []
sys.addaudithook(lambda event, args: noted.append(event) if event in NOTED_EVENTS else None)

import reactor_coord  # noqa: E402  the hook must be there first

at_import = list(noted)
heavy = sorted(name for name in sys.modules if name.split(".")[0] == "celery" or name == "reactor_coord.models")
noted.clear()

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    SECRET_KEY="of no use to anybody",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "never-made.sqlite3"}},
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}},
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.admin",
        "rest_framework",
        "reactor_coord",
    ],
)
django.setup()

print(
    json.dumps(
        {
            "imported_from": reactor_coord.__file__,
            "at_import": at_import,
            "at_setup": noted,
            "threads": threading.active_count(),
            "heavy_modules_at_import": heavy,
        }
    )
)
