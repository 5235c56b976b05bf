"""Executions in the admin: the list, the page of one, and the verbs behind a confirmation.

View-only: rows are the runtime's to write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import DataError
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from reactor_coord import operations
from reactor_coord.errors import InputValidationError, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.operations import views
from reactor_coord.templatetags.reactor_coord_admin import rc_ago, rc_badge, rc_span

from .answering import AnswerForm
from .coordination import CoordinationPages
from .filters import BelongingFilter, ReactorFilter, RollbackFilter
from .forms import CancelForm, ReasonForm
from .picture import draw

OPERATE = "reactor_coord.operate_execution"

VERBS: dict[str, tuple[str, str]] = {
    "cancel": (
        "Cancel",
        "It stops before its next step, leaves every line it stands in, and undoes what it did, or nothing, if you say so.",
    ),
    "retry": ("Retry", "A new execution with the same inputs is started in a worker. This one stays as it is."),
    "undo": (
        "Undo",
        "What it did is undone, newest first. After an incomplete rollback only what is left is tried again.",
    ),
    "close": (
        "Close the rollback",
        "What its rollback left undone counts as dealt with: it stays listed, and is not tried again. Say what became of it.",
    ),
    "resume": ("Resume", "It is taken up again where it stopped. The step it was in is repeated."),
}
"""What a button says and what pressing it does."""


if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Execution]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(Execution)
class ExecutionAdmin(CoordinationPages, _ModelAdmin):
    """See the module."""

    list_display = ("short_id", "reactor_name", "state", "waits_on", "age", "lasted")
    list_filter = (
        "status",
        BelongingFilter,
        ReactorFilter,
        RollbackFilter,
        "mode",
        ("created_at", admin.DateFieldListFilter),
    )
    search_fields = ("idempotency_key__exact",)
    search_help_text = "An id, the end of one, an idempotency key, or the correlation id of a question"
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200
    actions = None
    change_list_template = "admin/reactor_coord/execution/change_list.html"

    class Media:
        css = {"all": ("reactor_coord/admin.css",)}

    # --- view-only

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return False

    # --- the list

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the columns that are filters: others would be read out a letter at a time, redacted values too."""
        own = {each.parameter_name for each in (BelongingFilter, ReactorFilter, RollbackFilter)}
        return lookup.partition("__")[0] in {"status", "mode", "created_at", *own}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        return views.listing(super().get_queryset(request), started_only=False)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Execution], search_term: str
    ) -> tuple[QuerySet[Execution], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        named = Q(idempotency_key=term) | Q(pk__in=views.asking_under(term))
        try:
            return queryset.filter(named | Q(pk=UUID(term))), False
        except ValueError:
            pass  # not a whole id
        if re.fullmatch(r"[0-9a-fA-F]{6,12}", term):
            ended = named | Q(id_text__endswith=term.lower())
            return queryset.alias(id_text=Cast("id", CharField())).filter(ended), False
        return queryset.filter(named), False

    @admin.display(description="execution", ordering="id")
    def short_id(self, row: Execution) -> SafeString:
        code = format_html('<code title="{}">{}</code>', row.pk, views.short(str(row.pk)))
        if row.parent_id is None:
            return code
        place = f"{row.parent_step}[{row.element_index}]" if row.element_index is not None else row.parent_step
        return format_html(
            '{} <small class="rc-quiet-text">{} of {}</small>', code, place, views.short(str(row.parent_id))
        )

    @admin.display(description="reactor", ordering="reactor")
    def reactor_name(self, row: Execution) -> SafeString:
        return format_html('<span title="{}">{}</span>', row.reactor, row.label or row.reactor)

    @admin.display(description="status", ordering="status")
    def state(self, row: Execution) -> SafeString:
        return rc_badge(row.status, views.summary(row).status_label)

    @admin.display(description="waits on")
    def waits_on(self, row: Execution) -> SafeString | str:
        wait = views.summary(row).waits_on
        if wait is None:
            return ""
        if not wait.key:
            return format_html("{}", wait.kind.replace("_", " "))
        return format_html(
            "{} <code>{}</code> at {}", wait.primitive, wait.key, wait.path or wait.step or "the reactor"
        )

    @admin.display(description="age", ordering="id")
    def age(self, row: Execution) -> SafeString | str:
        return rc_ago(row.created_at)

    @admin.display(description="took")
    def lasted(self, row: Execution) -> str:
        return rc_span(views.summary(row).duration)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        try:
            return super().changelist_view(request, {"title": "Executions", **(extra_context or {})})
        except (OverflowError, ValueError, DataError):  # a time that no clock shows, a text that no database stores
            self.message_user(request, "A filter could not be asked for: it was left out.", messages.WARNING)
            return HttpResponseRedirect(request.path)

    # --- one execution

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        row = self._row(request, object_id)
        detail = views.detail(row)
        may = request.user.has_perm(OPERATE)
        offered = [name for name in ("cancel", "retry", "undo", "close", "resume") if may and name in detail.allowed]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": f"{detail.summary.label} {detail.summary.short_id}",
            "object": row,
            "detail": detail,
            "summary": detail.summary,
            "picture": draw(detail.steps),
            "may_operate": may,
            "buttons": [(name, _button(name, detail), self._url("execution_act", row.pk, name)) for name in offered],
            **(extra_context or {}),
        }
        return self._page(request, "admin/reactor_coord/execution/change_form.html", context)

    def act_view(self, request: HttpRequest, object_id: UUID, verb: str) -> HttpResponse:
        """GET asks, POST does. Nothing changes without a POST, a token, the permission and a reason."""
        if verb not in VERBS:
            raise Http404(f"no action is called {verb}")
        row = self._row(request, str(object_id))
        if not request.user.has_perm(OPERATE):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        back = self._url("execution_change", row.pk)
        questions = views.questions_of(row) if verb == "resume" else ()
        if questions:
            return self._answer_view(request, row, questions)
        form = (CancelForm if verb == "cancel" else ReasonForm)(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            started = self._act(request, row, verb, **form.cleaned_data)
            return HttpResponseRedirect(self._url("execution_change", started) if started else back)
        detail = views.detail(row, trace_limit=0)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": f"{VERBS[verb][0]} {detail.summary.label} {detail.summary.short_id}?",
            "object": row,
            "verb": verb,
            "button": VERBS[verb][0],
            "consequence": VERBS[verb][1],
            "detail": detail,
            "summary": detail.summary,
            "form": form,
            "back": back,
        }
        return self._page(request, "reactor_coord/admin/confirm_act.html", context)

    def _answer_view(
        self, request: HttpRequest, row: Execution, questions: tuple[views.QuestionView, ...]
    ) -> HttpResponse:
        """The form of one question; with several open, `step` says which."""
        asked = request.POST.get("step") or request.GET.get("step") or ""
        question = next((each for each in questions if each.step == asked), questions[0])
        back = self._url("execution_change", row.pk)
        form = AnswerForm(question, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid() and self._answer(request, row, form):
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": f"Answer {question.step}",
            "object": row,
            "summary": views.summary(row),
            "question": question,
            "inputs": views.detail(row, trace_limit=0).inputs,
            "others": [each for each in questions if each.step != question.step],
            "form": form,
            "back": back,
        }
        return self._page(request, "reactor_coord/admin/answer.html", context)

    def _answer(self, request: HttpRequest, row: Execution, form: AnswerForm) -> bool:
        """Whether there is nothing left to say here: it was taken, or can no longer be."""
        reason, step = form.cleaned_data["reason"], form.question.step
        try:
            operations.resume(row, payload=form.payload(), step=step, reason=reason, actor=str(request.user))
        except InputValidationError as error:
            form.refuse(error.fields)
            return False
        except ReactorCoordError as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return True
        self.log_change(request, row, f"Answer to {step}{': ' + reason if reason else ''}")
        self.message_user(request, f"The answer to {step} was taken; it goes on.", messages.SUCCESS)
        return True

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        act = path("<uuid:object_id>/<slug:verb>/", wrap(self.act_view), name="reactor_coord_execution_act")
        standard = super().get_urls()
        return [*self.coordination_urls(), *_before_catch_all(standard, act)]

    def _row(self, request: HttpRequest, object_id: str) -> Execution:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            visible = self.get_queryset(request).filter(pk=UUID(str(object_id))).order_by().values("pk")
            found = Execution.objects.filter(pk__in=visible).first()
        except ValueError:
            found = None
        if found is None:
            raise Http404(f"There is no execution {object_id}. It may have been pruned.")
        return found

    def _act(self, request: HttpRequest, row: Execution, verb: str, *, reason: str, as_it_stands: bool = False) -> Any:
        """Do it, and answer the id of what was started, if that is what it did."""
        more, words = ({"rollback": False}, ", undoing nothing,") if as_it_stands else ({}, "")
        try:
            done = getattr(operations, verb)(row, reason=reason, actor=str(request.user), **more)
        except ReactorCoordError as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return None
        self.log_change(request, row, f"{VERBS[verb][0]}{words.rstrip(',')}: {reason}")
        self.message_user(request, f"{VERBS[verb][0]}{words} was accepted.", messages.SUCCESS)
        return getattr(done, "id", None)


def _button(verb: str, detail: views.ExecutionDetail) -> str:
    return "Answer" if verb == "resume" and detail.questions else VERBS[verb][0]


def _before_catch_all(standard: list[URLPattern], ours: URLPattern) -> list[URLPattern]:
    """Ours after `history`, `delete` and `change`, which are slugs as well, and before the admin's last pattern."""
    return [*standard[:-1], ours, standard[-1]]
