"""Settings of the demo project. Two addresses may come from the environment: `REDIS_URL` and `DATABASE_URL`.

Without them `manage.py demo` and `manage.py serve` bring a Valkey of their own and keep a SQLite file in `.demo/`.
"""

from __future__ import annotations

import os

from demo_project import databases, place

BASE_DIR = place.BASE_DIR

DEBUG = os.environ.get("DJANGO_DEBUG", "1") == "1"
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only-for-the-demo-which-holds-nothing-secret")
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "reactor_coord",
    "demo_project.payments",
    "demo_project.shipping",
    "demo_project.mailing",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "demo_project.urls"
WSGI_APPLICATION = "demo_project.wsgi.application"
ASGI_APPLICATION = "demo_project.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = place.folder() / "static"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

# --- where things are kept

DATABASE_URL = os.environ.get("DATABASE_URL", "")
DATABASES = {"default": databases.from_url(DATABASE_URL) if DATABASE_URL else databases.sqlite(place.database_file())}

REDIS_URL = os.environ.get("REDIS_URL") or place.embedded_redis_url() or "redis://127.0.0.1:6379/0"
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}}

# --- Celery: the same Redis, a queue of its own, so that a worker of another project never takes our messages

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_DEFAULT_QUEUE = "reactor_coord_demo"
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True

# --- the engine. A worker that was killed is noticed sooner than with the defaults (60 s and 5 s): a demo should not be long.

REACTOR_COORD = {
    "REDIS_ALIAS": "default",
    "LEASE_TTL": 5,
    "SWEEP_INTERVAL": 1,
    "RATE_LIMITS": {"courier": {"limits": {"second": 5, "hour": 2000}, "algorithm": "sliding_window"}},
}

# --- the letters of `notify` and of `Transfer`: one file each in .demo/mail

EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = place.folder() / "mail"

REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {"TITLE": "reactor_coord demo", "VERSION": "1"}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "reactor_coord": {
            "handlers": ["stderr"],
            "level": os.environ.get("DEMO_LOG_LEVEL", "WARNING"),
            "propagate": False,
        }
    },
}
