"""The coordination page of the admin, and the acts on what it shows, each behind a confirmation that names what was looked at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from reactor_coord.errors import NO_ANSWER, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.operations import views

from .acts import ACTS, Act
from .page import Page

RELEASE = "reactor_coord.release_hold"

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Execution]
else:
    _Base = object


class CoordinationPages(_Base):
    """Pages that belong to no single row: they hang under the executions and are linked from the app's index."""

    def coordination_urls(self) -> list[URLPattern]:
        """To be put before the admin's own patterns."""
        wrap = self.admin_site.admin_view
        pages = [path("coordination/", wrap(self.coordination_view), name="reactor_coord_coordination")]
        return pages + [
            path(f"coordination/{name}/", wrap(partial(self.coordinate_view, name=name)), name=f"reactor_coord_{name}")
            for name in ACTS
        ]

    def _url(self, name: str, *args: Any) -> str:
        """A page of this site: a project may have several."""
        return reverse(f"admin:reactor_coord_{name}", args=args, current_app=self.admin_site.name)

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> Page:
        """The page, whose links lead to this site."""
        request.current_app = self.admin_site.name
        return Page(request, template, context)

    def coordination_view(self, request: HttpRequest) -> HttpResponse:
        """All five primitives as they are now, and who stepped aside."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        shown: dict[str, views.Live[Any]] = {
            "holds": views.holds(),
            "waiters": views.waiters(),
            "limits": views.limits(),
            "buckets": views.buckets(),
            "lines": views.lines(),
            "parks": views.parks(),
        }
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": "Coordination",
            **shown,
            "notice": next((each.notice for each in shown.values() if each.notice), ""),
            "may_release": request.user.has_perm(RELEASE),
            "now": timezone.now(),
        }
        return self._page(request, "reactor_coord/admin/coordination.html", context)

    def coordinate_view(self, request: HttpRequest, *, name: str) -> HttpResponse:
        """GET names what it is about and asks, POST does it: only if that is still so."""
        if not self.has_view_permission(request) or not request.user.has_perm(RELEASE):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        act, back = ACTS[name], self._url("coordination")
        asked = request.POST if request.method == "POST" else request.GET
        named = act.named(asked)
        if named is None:
            self.message_user(request, f"Nothing was named to {name}: choose it on this page.", messages.WARNING)
            return HttpResponseRedirect(back)
        try:
            shown = act.look(**named)
            if shown is None:
                self.message_user(request, act.gone.format(**named), messages.WARNING)
                return HttpResponseRedirect(back)
            form = act.form(request.POST) if request.method == "POST" else act.form(initial=named)
            if request.method == "POST" and form.is_valid():
                self._coordinate(request, act, named, form.cleaned_data["reason"])
                return HttpResponseRedirect(back)
        except NO_ANSWER as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": act.title.format(**named),
            "act": act,
            "name": name,
            "shown": shown,
            "form": form,
            "back": back,
        }
        return self._page(request, "reactor_coord/admin/confirm_coordinate.html", context)

    def _coordinate(self, request: HttpRequest, act: Act, named: dict[str, Any], reason: str) -> None:
        try:
            done = act.do(**named, reason=reason, actor=request.user)
        except ReactorCoordError as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return
        if not done:
            self.message_user(request, act.gone.format(**named), messages.WARNING)
            return
        self.message_user(request, act.done.format(**named), messages.SUCCESS)
