"""Errors of the app as answers a caller can act on: `{"code", "detail", ...}` with the status that says whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from reactor_coord.errors import (
    CodecError,
    CoordinationDamaged,
    CoordinationUnavailable,
    ExecutionConflict,
    InputValidationError,
    NotRunnable,
    ReactorCoordError,
    UnknownReactor,
)
from reactor_coord.operations.views import mask_secrets

_STATUS: tuple[tuple[type[ReactorCoordError], int], ...] = (
    (UnknownReactor, status.HTTP_400_BAD_REQUEST),
    (InputValidationError, status.HTTP_400_BAD_REQUEST),
    (NotRunnable, status.HTTP_400_BAD_REQUEST),
    (CodecError, status.HTTP_400_BAD_REQUEST),
    (ExecutionConflict, status.HTTP_409_CONFLICT),
    (CoordinationUnavailable, status.HTTP_503_SERVICE_UNAVAILABLE),
    (CoordinationDamaged, status.HTTP_503_SERVICE_UNAVAILABLE),
)


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """The answer for one of our errors; everything else is REST framework's to answer."""
    if not isinstance(error, ReactorCoordError):
        return exception_handler(error, dict(context))
    code = next((found for kind, found in _STATUS if isinstance(error, kind)), status.HTTP_409_CONFLICT)
    body: dict[str, Any] = {"code": error.code, "detail": mask_secrets(str(error))}
    if isinstance(error, InputValidationError):
        body["fields"] = {name: list(problems) for name, problems in error.fields.items()}
    if isinstance(error, UnknownReactor):
        body["known"] = sorted(error.known)
    headers = {"Retry-After": "5"} if code == status.HTTP_503_SERVICE_UNAVAILABLE else None
    return Response(body, status=code, headers=headers)
