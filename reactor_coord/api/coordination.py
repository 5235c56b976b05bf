"""Coordination over HTTP: who holds, who waits, who parked, and releasing one hold that was looked at."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from reactor_coord import operations
from reactor_coord.errors import CoordinationUnavailable, ExecutionConflict
from reactor_coord.models import Execution
from reactor_coord.operations import views

from . import serializers
from .base import OperatorViewSet
from .pagination import CappedPagination
from .permissions import RELEASE, VIEW

_TAGS = ["coordination"]
_UNREACHABLE = OpenApiResponse(serializers.Problem, description="Redis cannot be reached.")


class CoordinationViewSet(OperatorViewSet):
    """What Redis says now. Without Redis it answers 503: an empty list would read as "nobody holds anything"."""

    queryset = Execution.objects.all()
    pagination_class = CappedPagination
    serializer_class = serializers.Hold
    action_permissions: ClassVar[dict[str, tuple[str, ...]]] = {"release": (VIEW, RELEASE)}

    @extend_schema(
        tags=_TAGS,
        responses={200: serializers.Hold(many=True), 503: _UNREACHABLE},
        summary="Every live hold, the oldest first",
    )
    @action(detail=False)
    def holds(self, request: Request) -> Response:
        """Key, holder, since when, how much of its lease is left, its fence, and how many wait for it."""
        return self._page(views.holds(), serializers.Hold)

    @extend_schema(
        tags=_TAGS, responses={200: serializers.Waiter(many=True), 503: _UNREACHABLE}, summary="Everybody in line"
    )
    @action(detail=False)
    def waiters(self, request: Request) -> Response:
        """By key and place: in the order in which they will be served."""
        return self._page(views.waiters(), serializers.Waiter)

    @extend_schema(tags=_TAGS, responses=serializers.Park(many=True), summary="Executions that stepped aside, and why")
    @action(detail=False)
    def parks(self, request: Request) -> Response:
        """From the database, with holder and place from Redis; without Redis they are as last recorded (`wait.live` false)."""
        return self._page(views.parks(self.get_queryset()), serializers.Park, needs_redis=False)

    @extend_schema(
        tags=_TAGS,
        request=serializers.Release,
        responses={
            200: serializers.Released,
            409: OpenApiResponse(serializers.Problem, description="Somebody else holds it by now, or nobody."),
            503: _UNREACHABLE,
        },
        summary="Release one hold by force",
    )
    @action(detail=False, methods=["post"], url_path="holds/release")
    def release(self, request: Request) -> Response:
        """Only if `fence` is still its fence, so that a successor's hold is never taken away. Whoever waits is woken."""
        asked = serializers.Release(data=request.data)
        asked.is_valid(raise_exception=True)
        wanted = asked.validated_data
        released = operations.release_key(**wanted, actor=str(request.user))
        if not released:
            raise ExecutionConflict(
                f"Owner changed: fence {wanted['fence']} is not the holder of {wanted['primitive']} {wanted['key']} any more. "
                "Nothing was released; look at the holds again."
            )
        return Response(serializers.Released({"key": wanted["key"], "fence": wanted["fence"], "released": True}).data)

    def _page(self, found: views.Live[Any], serializer: type[Any], *, needs_redis: bool = True) -> Response:
        if found.notice and needs_redis:
            raise CoordinationUnavailable(found.notice)
        page: Any = self.paginate_queryset(found.rows)
        return self.get_paginated_response(serializer(page, many=True).data)
