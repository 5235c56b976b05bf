"""What all our API views share: permissions per action, our answers to our errors, a schema that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.viewsets import GenericViewSet

from . import errors
from .permissions import VIEW, HasActionPermission, project_permissions

Method = TypeVar("Method", bound=Callable[..., Any])


def described(**told: Any) -> Callable[[Method], Method]:
    """`extend_schema` for a method, on drf-spectacular's schema class whatever the project's `DEFAULT_SCHEMA_CLASS` is.

    It would derive from the project's, and one that is not drf-spectacular's cannot describe anything.
    """

    def decorate(method: Method) -> Method:
        vars(method).setdefault("kwargs", {}).setdefault("schema", AutoSchema)
        decorated: Method = extend_schema(**told)(method)
        return decorated

    return decorate


class ExactJSONRenderer(JSONRenderer):
    """JSON in ASCII: a key with half of a surrogate pair in it is told as it is, where UTF-8 has no bytes for it."""

    ensure_ascii = True


class OperatorViewSet(GenericViewSet[Any]):
    """A view for operators. `action_permissions` names what an action needs besides `view_execution`.

    Subclass it, narrow `get_queryset`, and mount the subclass to give each caller only what is theirs: list, detail, trace
    and every action go through that one queryset.
    """

    schema = AutoSchema()
    versioning_class: Any = None
    """The paths have no version of the project's: what its scheme would look for is not there."""
    action_permissions: ClassVar[dict[str, tuple[str, ...]]] = {}

    def get_renderers(self) -> list[BaseRenderer]:
        """The project's, with JSON as exact as the keys are."""
        return [ExactJSONRenderer() if type(each) is JSONRenderer else each for each in super().get_renderers()]

    def get_permissions(self) -> list[BasePermission]:
        """The project's classes, then the model permission; without either nothing opens."""
        return [*project_permissions(), HasActionPermission()]

    def required_permissions(self) -> tuple[str, ...]:
        """The model permissions of the action asked for."""
        return self.action_permissions.get(self.action or "", (VIEW,))

    def get_exception_handler(self) -> Callable[..., Any]:
        """Ours, whatever the project's is: it knows what our errors mean."""
        return errors.handle
