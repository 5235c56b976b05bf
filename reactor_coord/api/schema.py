"""The OpenAPI document of this API alone, whatever else the project serves, and a page to read it on.

The page is ours, without script or anything from another host: it opens offline and under a strict content policy. Tools take
the document itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import BasePermission
from rest_framework.renderers import TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from .permissions import VIEW, HasActionPermission, project_permissions

Endpoint = tuple[str, str, str, Any]

SETTINGS = {
    "TITLE": "Reactor coordination",
    "DESCRIPTION": "Executions, what they wait on and who holds it. Staff only, each action by its permission.",
    "VERSION": "1",
    "PREPROCESSING_HOOKS": ["reactor_coord.api.schema.only_ours"],
    "POSTPROCESSING_HOOKS": [],
}


def only_ours(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints whose view is one of ours or derives from one.

    Without those of the document itself: drf-spectacular's own view can be described only where the project's
    `DEFAULT_SCHEMA_CLASS` is drf-spectacular's.
    """
    return [
        endpoint
        for endpoint in endpoints
        if not issubclass(endpoint[3].cls, _StaffOnly)
        and any(base.__module__.startswith("reactor_coord.api.") for base in endpoint[3].cls.__mro__)
    ]


class _StaffOnly:
    """The same door as the API's. No part of a project's own document, whatever its `DEFAULT_SCHEMA_CLASS` is."""

    schema: Any = None
    versioning_class: Any = None

    def get_permissions(self) -> list[BasePermission]:
        return [*project_permissions(), HasActionPermission()]

    def required_permissions(self) -> tuple[str, ...]:
        return (VIEW,)


class SchemaView(_StaffOnly, SpectacularAPIView):
    """The document."""

    custom_settings = SETTINGS


class DocsView(_StaffOnly, APIView):
    """The document to read."""

    renderer_classes = (TemplateHTMLRenderer,)

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """What the page takes, as the page itself."""
        return self.get(request)

    def get(self, request: Request) -> Response:
        """Operations by tag, then what they take and answer."""
        generator: Any = SchemaGenerator
        with patched_settings(SETTINGS):
            document = generator().get_schema(request=request, public=True)
        context = {
            "info": document["info"],
            "operations": sorted(_operations(document["paths"]), key=lambda each: "/coordination/" in each.path),
            "schemas": tuple(_schemas(document["components"]["schemas"])),
            "document_url": reverse("reactor_coord_api:schema"),
        }
        return Response(context, template_name="reactor_coord/api/docs.html")


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of an operation, or one field of a schema."""

    name: str
    type: str
    schema: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[Field, ...]
    takes: str
    answers: tuple[tuple[str, str, str], ...]


def _operations(paths: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in paths.items():
        for method, spec in methods.items():
            yield Operation(
                method=method.upper(),
                path=path,
                summary=spec.get("summary", ""),
                description=spec.get("description", "").replace("`", ""),
                parameters=tuple(
                    _field(each["name"], each["schema"], each.get("required", False), each.get("description", ""))
                    for each in spec.get("parameters", ())
                    if each["in"] == "query"
                ),
                takes=_content(spec.get("requestBody", {}))[1],
                answers=tuple((code, *_content(answer)) for code, answer in sorted(spec["responses"].items())),
            )


def _schemas(schemas: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[Field, ...]]]:
    for name, spec in schemas.items():
        required = spec.get("required", ())
        fields = tuple(
            _field(field, each, field in required, each.get("description", ""))
            for field, each in spec.get("properties", {}).items()
        )
        yield name, spec.get("description", ""), fields


def _field(name: str, spec: Mapping[str, Any], required: bool, description: str) -> Field:
    words, schema = _type(spec)
    return Field(name, words, schema, required, description)


def _content(holder: Mapping[str, Any]) -> tuple[str, str]:
    """What a request or an answer is described as, and the schema it holds."""
    media = holder.get("content", {}).get("application/json", {})
    return holder.get("description", ""), _type(media["schema"])[1] if "schema" in media else ""


def _type(spec: Mapping[str, Any]) -> tuple[str, str]:
    """A type in words, and the schema it refers to, if any."""
    for several in ("allOf", "oneOf", "anyOf"):
        if spec.get(several):
            return _type(spec[several][0])
    if "$ref" in spec:
        return "", spec["$ref"].rsplit("/", 1)[-1]
    if spec.get("type") == "array":
        words, schema = _type(spec.get("items", {}))
        return f"list of {words}".rstrip(), schema
    if isinstance(spec.get("additionalProperties"), Mapping):
        return "object", ""
    if "enum" in spec:
        return " | ".join(str(each) for each in spec["enum"]), ""
    return str(spec.get("format") or spec.get("type") or "anything"), ""
