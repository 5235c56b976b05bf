"""Django settings of the test project. Where the servers are comes from `tests/support/bench.py`.

`RC_TEST_DB=sqlite` (the default) or `postgres` chooses the database; `RC_TEST_REACTOR_COORD` is a JSON object laid over
`REACTOR_COORD`. A live worker gets the test database's name and further settings from `reactor_coord.testing.worker`.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit

from reactor_coord.testing.servers import database_settings
from tests.support import clock
from tests.support.bench import bench

clock.shift_from_environment()

_bench = bench()

SECRET_KEY = "tests only"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "reactor_coord",
    "demo_project.payments",
    "demo_project.shipping",
    "demo_project.mailing",
    "tests.live",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {"TITLE": "reactor_coord, under test", "VERSION": "0"}


def _database() -> dict[str, Any]:
    """SQLite in a file, so that threads and worker processes see it; PostgreSQL when asked for."""
    if _bench.database_url:
        return {**database_settings(_bench.database_url), "CONN_HEALTH_CHECKS": True}
    path = str(_bench.directory / "test.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "TEST": {"NAME": path},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
        },
    }


DATABASES = {"default": _database()}

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": _bench.redis_url,
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
    }
}

REACTOR_COORD: dict[str, Any] = {
    "KEY_PREFIX": f"rct-{_bench.run}",
    "RATE_LIMITS": {"courier": {"limits": {"second": 5, "hour": 2000}, "algorithm": "sliding_window"}},
    **json.loads(os.environ.get("RC_TEST_REACTOR_COORD", "{}")),
}

CELERY_BROKER_URL = urlsplit(_bench.redis_url)._replace(path="/1").geturl()
CELERY_TASK_DEFAULT_QUEUE = f"rct-{_bench.run}"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": float(os.environ.get("RC_TEST_VISIBILITY_TIMEOUT", "3600"))}
