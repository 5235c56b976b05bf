"""The OpenAPI document of this API alone, whatever else the project serves, and a page to read it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.permissions import BasePermission

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
    """The endpoints whose view is one of ours or derives from one."""
    return [
        endpoint
        for endpoint in endpoints
        if any(base.__module__.startswith("reactor_coord.api.") for base in endpoint[3].cls.__mro__)
    ]


class _StaffOnly:
    """The same door as the API's."""

    def get_permissions(self) -> list[BasePermission]:
        return [*project_permissions(), HasActionPermission()]

    def required_permissions(self) -> tuple[str, ...]:
        return (VIEW,)


@extend_schema(exclude=True)
class SchemaView(_StaffOnly, SpectacularAPIView):
    """The document."""

    custom_settings = SETTINGS


@extend_schema(exclude=True)
class DocsView(_StaffOnly, SpectacularSwaggerView):
    """The document to read and try out."""

    url_name = "reactor_coord_api:schema"
