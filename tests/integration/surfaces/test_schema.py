"""The OpenAPI document: complete, valid, without a warning, and of this API alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import path, reverse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from rest_framework.views import APIView

from reactor_coord.api import schema

from .conftest import ClientOf

# Neither is typed.
GENERATE: Any = SchemaGenerator
VALIDATE: Any = validate_schema

pytestmark = pytest.mark.django_db


class Foreign(APIView):
    """A view of the project that is none of ours, and has no serializer."""


urlpatterns = [path("foreign/", Foreign.as_view())]


def _document() -> dict[str, Any]:
    GENERATOR_STATS.reset()
    document: dict[str, Any] = GENERATE(urlconf="reactor_coord.api.urls").get_schema(request=None, public=True)
    return document


def test_u41_a_project_describes_its_whole_api_without_a_setting_of_its_own(settings: Any, tmp_path: Path) -> None:
    """As README has it: the framework's own schema class, and `manage.py spectacular`."""
    settings.REST_FRAMEWORK = {}
    for view in (schema.DocsView, schema.SchemaView):
        assert view.schema is None
    written = tmp_path / "schema.yml"
    call_command("spectacular", file=str(written), urlconf="tests.urls")
    text = written.read_text()
    assert "/executions/{id}/cancel/" in text and "/docs/" not in text


def test_it_generates_without_a_warning_and_is_valid() -> None:
    document = _document()
    assert not GENERATOR_STATS._warn_cache and not GENERATOR_STATS._error_cache
    VALIDATE(document)


def test_every_operation_says_what_it_takes_and_answers() -> None:
    paths = _document()["paths"]
    assert set(paths) == {
        "/executions/",
        "/executions/{id}/",
        "/executions/{id}/trace/",
        "/executions/{id}/cancel/",
        "/executions/{id}/retry/",
        "/executions/{id}/undo/",
        "/executions/{id}/close/",
        "/executions/{id}/resume/",
        "/coordination/holds/",
        "/coordination/waiters/",
        "/coordination/parks/",
        "/coordination/limits/",
        "/coordination/periods/",
        "/coordination/lines/",
        "/coordination/holds/release/",
        "/coordination/waiters/drop/",
        "/coordination/lines/skip/",
        "/coordination/lines/reset/",
        "/coordination/periods/clear/",
        "/coordination/limits/forget/",
    }
    for where, operations in paths.items():
        for method, operation in operations.items():
            assert operation["summary"] and operation["description"], (where, method)
            assert any(code.startswith("2") and "content" in answer for code, answer in operation["responses"].items())
    start = paths["/executions/"]["post"]
    assert set(start["responses"]) >= {"202", "400", "503"} and "requestBody" in start


def test_it_is_served_and_holds_nothing_of_other_apps(client_of: ClientOf) -> None:
    answer = client_of("viewer").get(reverse("reactor_coord_api:schema"), {"format": "json"})
    assert answer.status_code == 200
    assert all(where.startswith("/api/") for where in answer.json()["paths"])
    docs = client_of("viewer").get(reverse("reactor_coord_api:docs")).content.decode()
    assert "/api/coordination/holds/release/" in docs and "http" not in docs.replace("http-equiv", "")
    foreign = ("/foreign/", "/foreign/", "GET", urlpatterns[0].callback)
    assert schema.only_ours([foreign]) == []
