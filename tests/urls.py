"""URLs of the test project: the admin and the API, mounted as a user would."""

from __future__ import annotations

import importlib

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", admin.site.urls)]

try:
    importlib.import_module("reactor_coord.api.urls")
except ImportError:  # until that room is built
    pass
else:
    urlpatterns.append(path("api/", include("reactor_coord.api.urls")))
