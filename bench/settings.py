"""Django settings of the benchmarks: as a project in production would have them, on the servers that `stage` started."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from reactor_coord.testing.servers import database_settings

_redis = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:1/0")
_postgres = os.environ.get("BENCH_DATABASE_URL", "postgresql://postgres@127.0.0.1:1/postgres")

SECRET_KEY = "benchmarks only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "bench.urls"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "reactor_coord", "bench"]

_usual = {**database_settings(_postgres), "CONN_MAX_AGE": None}

DATABASES = {
    "default": _usual,
    # The same database as behind a pooler: nothing is prepared.
    "unprepared": {**_usual, "OPTIONS": {"prepare_threshold": None}},
    "sqlite": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BENCH_SQLITE", ":memory:"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
    },
}
DATABASE_ROUTERS = ["bench.routing.Router"]

CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": _redis}}

CELERY_BROKER_URL = urlsplit(_redis)._replace(path="/1").geturl()
CELERY_TASK_DEFAULT_QUEUE = "bench"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True

REACTOR_COORD: dict[str, object] = {"KEY_PREFIX": "bench"}
