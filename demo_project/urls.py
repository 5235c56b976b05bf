"""The demo site: its home page, the admin, and the API of `reactor_coord`."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from demo_project.home import home

urlpatterns = [
    path("", home, name="home"),
    path("admin/", admin.site.urls),
    path("api/", include("reactor_coord.api.urls")),
]
