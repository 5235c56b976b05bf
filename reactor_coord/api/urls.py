"""`path("api/", include("reactor_coord.api.urls"))`."""

from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from .coordination import CoordinationViewSet
from .executions import ExecutionViewSet
from .schema import DocsView, SchemaView

app_name = "reactor_coord_api"

router = SimpleRouter(use_regex_path=False)
router.register("executions", ExecutionViewSet, basename="execution")
router.register("coordination", CoordinationViewSet, basename="coordination")

urlpatterns = [
    *router.urls,
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", DocsView.as_view(), name="docs"),
]
