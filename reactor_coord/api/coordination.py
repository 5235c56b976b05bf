"""Coordination over HTTP: all five primitives as they are now, who stepped aside, and acts on what was looked at.

Every act names what it is about by a number that changes with it (a fence, a ticket, an epoch), and answers 409 if it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiResponse
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from reactor_coord import operations
from reactor_coord.errors import CoordinationUnavailable, ExecutionConflict
from reactor_coord.models import Execution
from reactor_coord.operations import views

from . import serializers
from .base import OperatorViewSet, described
from .pagination import CappedPagination
from .permissions import RELEASE, VIEW

_TAGS = ["coordination"]
_CHANGED = OpenApiResponse(serializers.Problem, description="It changed since it was looked at. Nothing was done.")
_UNREACHABLE = OpenApiResponse(serializers.Problem, description="Redis cannot be reached.")


class CoordinationViewSet(OperatorViewSet):
    """What Redis says now. Without Redis it answers 503: an empty list would read as "nobody holds anything"."""

    queryset = Execution.objects.all()
    pagination_class = CappedPagination
    serializer_class = serializers.Hold
    action_permissions: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(
        ("release", "drop", "skip", "reset", "clear", "forget"), (VIEW, RELEASE)
    )

    @described(
        tags=_TAGS,
        responses={200: serializers.Hold(many=True), 503: _UNREACHABLE},
        summary="Every live hold, the oldest first",
    )
    @action(detail=False)
    def holds(self, request: Request) -> Response:
        """Key, holder, since when, how much of its lease is left, its fence, and how many wait for it."""
        return self._page(views.holds(), serializers.Hold)

    @described(
        tags=_TAGS, responses={200: serializers.Waiter(many=True), 503: _UNREACHABLE}, summary="Everybody in line"
    )
    @action(detail=False)
    def waiters(self, request: Request) -> Response:
        """By key and place: in the order in which they will be served."""
        return self._page(views.waiters(), serializers.Waiter)

    @described(
        tags=_TAGS,
        responses={200: serializers.RateLimit(many=True), 503: _UNREACHABLE},
        summary="Rate limits: windows and planned slots",
    )
    @action(detail=False)
    def limits(self, request: Request) -> Response:
        """By key; those of which a window or a plan is left."""
        return self._page(views.limits(), serializers.RateLimit)

    @described(
        tags=_TAGS,
        responses={200: serializers.Bucket(many=True), 503: _UNREACHABLE},
        summary="Periods: marked buckets",
    )
    @action(detail=False)
    def periods(self, request: Request) -> Response:
        """By key; buckets that are not over, with who ran in them."""
        return self._page(views.buckets(), serializers.Bucket)

    @described(
        tags=_TAGS,
        responses={200: serializers.OrderedLine(many=True), 503: _UNREACHABLE},
        summary="Ordered lines: whose turn it is, and who comes next",
    )
    @action(detail=False)
    def lines(self, request: Request) -> Response:
        """By key; lines that somebody is in, or that are failed for those who come."""
        return self._page(views.lines(), serializers.OrderedLine)

    @described(tags=_TAGS, responses=serializers.Park(many=True), summary="Executions that stepped aside, and why")
    @action(detail=False)
    def parks(self, request: Request) -> Response:
        """From the database, with holder and place from Redis; without Redis they are as last recorded (`wait.live` false)."""
        return self._page(views.parks(self.get_queryset()), serializers.Park, needs_redis=False)

    @described(
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
        released = operations.release_key(**wanted, actor=request.user)
        if not released:
            raise ExecutionConflict(
                f"Owner changed: fence {wanted['fence']} is not the holder of {wanted['primitive']} {wanted['key']} any more. "
                "Nothing was released; look at the holds again."
            )
        return Response(serializers.Released({"key": wanted["key"], "fence": wanted["fence"], "released": True}).data)

    @described(
        tags=_TAGS,
        request=serializers.Drop,
        responses={200: serializers.Done, 409: _CHANGED, 503: _UNREACHABLE},
        summary="Drop a waiter from a line",
    )
    @action(detail=False, methods=["post"], url_path="waiters/drop")
    def drop(self, request: Request) -> Response:
        """Its execution is not ended: it looks again by itself when it was due to, and joins anew, last."""
        return self._act("drop", operations.drop_waiter, serializers.Drop(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Skip,
        responses={200: serializers.Done, 409: _CHANGED, 503: _UNREACHABLE},
        summary="Skip a position of an ordered line",
    )
    @action(detail=False, methods=["post"], url_path="lines/skip")
    def skip(self, request: Request) -> Response:
        """The next is woken. Who had it, if it still waits, arrives anew, last; if it runs, it has lost its turn."""
        return self._act("skip", operations.skip_position, serializers.Skip(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Reset,
        responses={200: serializers.Done, 409: _CHANGED, 503: _UNREACHABLE},
        summary="Begin an ordered line afresh",
    )
    @action(detail=False, methods=["post"], url_path="lines/reset")
    def reset(self, request: Request) -> Response:
        """Whoever waits in it is woken, in order, and arrives anew; a failed position is forgotten."""
        return self._act("reset", operations.reset_line, serializers.Reset(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Clear,
        responses={200: serializers.Done, 409: _CHANGED, 503: _UNREACHABLE},
        summary="Free a bucket of a period",
    )
    @action(detail=False, methods=["post"], url_path="periods/clear")
    def clear(self, request: Request) -> Response:
        """Whoever comes next in it runs once more."""
        return self._act("clear", operations.clear_period, serializers.Clear(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Forget,
        responses={200: serializers.Done, 409: _CHANGED, 503: _UNREACHABLE},
        summary="Forget a planned slot of a rate limit",
    )
    @action(detail=False, methods=["post"], url_path="limits/forget")
    def forget(self, request: Request) -> Response:
        """Its execution looks at the time it was given, and asks anew."""
        return self._act("forget", operations.forget_slot, serializers.Forget(data=request.data))

    def _act(self, name: str, do: Callable[..., bool], asked: Any) -> Response:
        asked.is_valid(raise_exception=True)
        wanted = asked.validated_data
        if not do(**wanted, actor=self.request.user):
            raise ExecutionConflict(
                f"What was named of {wanted['key']} changed meanwhile. Nothing was done; look again."
            )
        return Response(serializers.Done({"key": wanted["key"], "done": name}).data)

    def _page(self, found: views.Live[Any], serializer: type[Any], *, needs_redis: bool = True) -> Response:
        if found.notice and needs_redis:
            raise CoordinationUnavailable(found.notice)
        page: Any = self.paginate_queryset(found.rows)
        return self.get_paginated_response(serializer(page, many=True).data)
