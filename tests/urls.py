"""URLs of the test project: the admin and the API, mounted as a user would."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/", include("reactor_coord.api.urls")),
]
