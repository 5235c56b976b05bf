"""Executions over HTTP: list, start, look at one, act on it."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from reactor_coord import conf, operations
from reactor_coord.models import Execution
from reactor_coord.operations import views

from . import serializers
from .base import OperatorViewSet, described
from .filters import ExecutionFilter, refuse_unknown
from .pagination import CappedPagination
from .permissions import OPERATE, VIEW

_CONFLICT = OpenApiResponse(serializers.Problem, description="Its state does not allow this now.")
_WRONG = OpenApiResponse(
    serializers.Problem, description="Unknown reactor or wrong input; says which and what to write."
)
_UNREACHABLE = OpenApiResponse(serializers.Problem, description="Redis or the broker cannot be reached.")
_TAGS = ["executions"]

HEADER_LENGTH = 150
"""Characters that an `Idempotency-Key` may have."""


class ExecutionViewSet(OperatorViewSet):
    """Executions. See `OperatorViewSet` for how to scope them to a caller."""

    queryset = Execution.objects.all()
    lookup_field = "pk"
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    pagination_class = CappedPagination
    filter_backends = (DjangoFilterBackend,)
    filterset_class = ExecutionFilter
    serializer_class = serializers.Summary
    action_permissions: ClassVar[dict[str, tuple[str, ...]]] = {
        "create": (OPERATE,),
        "cancel": (VIEW, OPERATE),
        "retry": (VIEW, OPERATE),
        "undo": (VIEW, OPERATE),
        "close": (VIEW, OPERATE),
        "resume": (VIEW, OPERATE),
    }

    @described(tags=_TAGS, responses=serializers.Summary(many=True), summary="List executions, newest first")
    def list(self, request: Request) -> Response:
        """Without payloads, and unless asked otherwise only those that somebody started: not what they composed or dispatched.

        What one waits on is as last recorded; its own page asks Redis.
        """
        refuse_unknown(request.query_params)
        rows = self.filter_queryset(views.listing(self.get_queryset(), started_only=False))
        page = self.paginate_queryset(rows) or ()
        return self.get_paginated_response(serializers.Summary([views.summary(row) for row in page], many=True).data)

    @described(tags=_TAGS, responses=serializers.Detail, summary="Everything about one execution", filters=False)
    def retrieve(self, request: Request, id: UUID) -> Response:
        """Its steps, begun or not, what each coordinates, what it waits on and who holds that."""
        return Response(serializers.Detail(views.detail(self._row(), trace_limit=0)).data)

    @described(
        tags=_TAGS,
        request=serializers.Start,
        responses={202: serializers.Started, 400: _WRONG, 409: _CONFLICT, 503: _UNREACHABLE},
        summary="Start a reactor in a worker",
        parameters=[
            OpenApiParameter(
                "Idempotency-Key",
                str,
                OpenApiParameter.HEADER,
                description="Asked again with it by the same user, there is one execution; with other inputs: 409.",
            )
        ],
    )
    def create(self, request: Request) -> Response:
        """Answers when the execution is stored; a worker begins once the request's transaction has committed."""
        asked = serializers.Start(data=request.data)
        asked.is_valid(raise_exception=True)
        wanted = dict(asked.validated_data)
        if "idempotency_key" not in wanted and (header := self._idempotency_header()):
            wanted["idempotency_key"] = header
        queues = conf.settings().API_QUEUES
        handle = operations.start(wanted.pop("reactor"), wanted.pop("inputs"), queues=queues, **wanted)
        url = self._url_of(handle.id)
        body = serializers.Started({"id": handle.id, "status": str(handle.status), "url": url}).data
        return Response(body, status=status.HTTP_202_ACCEPTED, headers={"Location": url})

    @described(
        tags=_TAGS,
        responses=serializers.Trace(many=True),
        summary="What happened, in order",
        filters=False,
        parameters=[OpenApiParameter("page", int), OpenApiParameter("page_size", int)],
    )
    @action(detail=True, filterset_class=None)
    def trace(self, request: Request, id: UUID) -> Response:
        """Trace rows of the execution and of what it composed, oldest first."""
        row = self._row()
        page = self.paginate_queryset(views.trace_rows(row)) or ()
        return self.get_paginated_response(serializers.Trace(views.trace_views(row, page), many=True).data)

    @described(
        tags=_TAGS,
        request=serializers.Cancel,
        responses={200: serializers.Summary, 409: _CONFLICT},
        summary="Cancel: stop it and undo what it did, or let that stand",
        filters=False,
    )
    @action(detail=True, methods=["post"], filterset_class=None)
    def cancel(self, request: Request, id: UUID) -> Response:
        """What is parked is cancelled at once; what runs is asked to stop after the step it is in."""
        return self._act("cancel", serializers.Cancel(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Retry,
        responses={200: serializers.Summary, 409: _CONFLICT},
        summary="Run it again: a new execution with the same inputs",
        filters=False,
    )
    @action(detail=True, methods=["post"], filterset_class=None)
    def retry(self, request: Request, id: UUID) -> Response:
        """Answers with the new execution; the old one stays as it is, and the two name each other."""
        return self._act("retry", serializers.Retry(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Reason,
        responses={200: serializers.Summary, 409: _CONFLICT},
        summary="Undo what it did",
        filters=False,
    )
    @action(detail=True, methods=["post"], filterset_class=None)
    def undo(self, request: Request, id: UUID) -> Response:
        """All of it; or, after an incomplete rollback, only what is left of it."""
        return self._act("undo", serializers.Reason(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.NeededReason,
        responses={200: serializers.Summary, 400: _WRONG, 409: _CONFLICT},
        summary="Close an incomplete rollback by hand",
        filters=False,
    )
    @action(detail=True, methods=["post"], filterset_class=None)
    def close(self, request: Request, id: UUID) -> Response:
        """What it left undone stays listed and is not tried again; the execution may then be retried."""
        return self._act("close", serializers.NeededReason(data=request.data))

    @described(
        tags=_TAGS,
        request=serializers.Payload,
        responses={200: serializers.Summary, 400: _WRONG, 409: _CONFLICT},
        summary="Answer an interrupt, or take up again what was aborted",
        filters=False,
    )
    @action(detail=True, methods=["post"], filterset_class=None)
    def resume(self, request: Request, id: UUID) -> Response:
        """The payload is validated before anything is resumed."""
        return self._act("resume", serializers.Payload(data=request.data))

    def _idempotency_header(self) -> str:
        """The caller's `Idempotency-Key`, as a key of this caller alone; empty without one."""
        given = self.request.headers.get("Idempotency-Key", "").strip()
        if len(given) > HEADER_LENGTH:
            raise ValidationError({"Idempotency-Key": [f"at most {HEADER_LENGTH} characters"]})
        return f"api:{self.request.user.pk}:{given}" if given else ""

    def _act(self, verb: str, asked: Any) -> Response:
        row = self._row()
        asked.is_valid(raise_exception=True)
        done = getattr(operations, verb)(row, **asked.validated_data, actor=str(self.request.user))
        started = getattr(done, "id", None)  # a retry is a new execution
        return Response(serializers.Summary(views.summary(views.listing_one(started or row.pk))).data)

    def _url_of(self, execution_id: UUID) -> str:
        """The page of one execution, wherever the project mounted this view."""
        match = self.request.resolver_match
        namespace = f"{match.namespace}:" if match is not None and match.namespace else ""
        return reverse(f"{namespace}{self.basename}-detail", args=[execution_id], request=self.request)

    def _row(self) -> Execution:
        """The row within the caller's scope. List filters do not apply to it: `filterset_class` is the list's."""
        rows: QuerySet[Execution] = self.get_queryset()
        row = get_object_or_404(rows, pk=self.kwargs["id"])
        self.check_object_permissions(self.request, row)
        return row
