"""Who may do what over HTTP: the classes of `API_PERMISSION_CLASSES`, and the model permission each action names.

`view_execution` to read, `operate_execution` to start, cancel, retry, undo or resume, `release_hold` to release a key. A
superuser has them all; being staff alone opens nothing.
"""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from reactor_coord import conf

VIEW = "reactor_coord.view_execution"
CHANGE = "reactor_coord.change_execution"
OPERATE = "reactor_coord.operate_execution"
RELEASE = "reactor_coord.release_hold"


class HasActionPermission(BasePermission):
    """The user has the model permission that the view names for this action."""

    message = "You do not have the permission this needs."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the user may do what `view.required_permissions()` lists. Django grants a superuser all."""
        user = request.user
        required: tuple[str, ...] = view.required_permissions()
        missing = [permission for permission in required if not _has(user, permission)]
        if missing:
            self.message = f"You need the permission {' and '.join(missing)} for this."
        return user.is_authenticated and not missing


def _has(user: Any, permission: str) -> bool:
    """As in Django's admin, who may change may view."""
    return bool(user.has_perm(permission)) or (permission == VIEW and bool(user.has_perm(CHANGE)))


def project_permissions() -> list[BasePermission]:
    """The classes the project asks of every caller, fresh for one request."""
    classes: list[Any] = [
        import_string(each) if isinstance(each, str) else each for each in conf.settings().API_PERMISSION_CLASSES
    ]
    return [each() for each in classes]
