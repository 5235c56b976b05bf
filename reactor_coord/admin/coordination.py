"""The coordination page of the admin, and releasing a hold that was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from reactor_coord import operations
from reactor_coord.errors import CoordinationUnavailable, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.operations import views

from .forms import ReleaseForm

RELEASE = "reactor_coord.release_hold"

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Execution]
else:
    _Base = object


class CoordinationPages(_Base):
    """Two pages that belong to no single row: they hang under the executions and are linked from the app's index."""

    def coordination_urls(self) -> list[URLPattern]:
        """To be put before the admin's own patterns."""
        wrap = self.admin_site.admin_view
        return [
            path("coordination/", wrap(self.coordination_view), name="reactor_coord_coordination"),
            path("coordination/release/", wrap(self.release_view), name="reactor_coord_release"),
        ]

    def coordination_view(self, request: HttpRequest) -> HttpResponse:
        """Holds, lines and parks as they are now."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        holds, waiters, parks = views.holds(), views.waiters(), views.parks()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": "Coordination",
            "holds": holds,
            "waiters": waiters,
            "parks": parks,
            "notice": holds.notice or waiters.notice,
            "may_release": request.user.has_perm(RELEASE),
            "now": timezone.now(),
        }
        return TemplateResponse(request, "reactor_coord/admin/coordination.html", context)

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """GET names the holder and asks, POST releases: only if that holder still has it."""
        if not self.has_view_permission(request) or not request.user.has_perm(RELEASE):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        back = reverse("admin:reactor_coord_coordination")
        form = ReleaseForm(request.POST) if request.method == "POST" else None
        if form is not None and form.is_valid():
            self._release(request, form.cleaned_data)
            return HttpResponseRedirect(back)
        asked = request.POST if request.method == "POST" else request.GET
        key, primitive = asked.get("key", ""), asked.get("primitive", "lock")
        shown = asked.get("fence", "")
        try:
            hold = views.hold(key, primitive, int(shown) if shown.isdecimal() else None)
        except CoordinationUnavailable as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return HttpResponseRedirect(back)
        if hold is None or (shown and str(hold.fence) != shown):
            now = f"it is {hold.holder} who has it now" if hold else "nobody has it now"
            self.message_user(request, f"Owner changed: {key} was given back meanwhile, {now}.", messages.WARNING)
            return HttpResponseRedirect(back)
        if form is None:
            form = ReleaseForm(initial={"key": key, "primitive": primitive, "fence": hold.fence})
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": f"Release {key}?",
            "hold": hold,
            "form": form,
            "back": back,
        }
        return TemplateResponse(request, "reactor_coord/admin/confirm_release.html", context)

    def _release(self, request: HttpRequest, asked: dict[str, Any]) -> None:
        key = asked["key"]
        try:
            released = operations.release_key(**asked, actor=str(request.user))
        except ReactorCoordError as error:
            self.message_user(request, views.mask_secrets(str(error)), messages.ERROR)
            return
        if not released:
            self.message_user(
                request, f"Owner changed: the hold of {key} that was shown is over. Nothing released.", messages.WARNING
            )
            return
        self.message_user(request, f"{key} was released; whoever is next in line has been woken.", messages.SUCCESS)
