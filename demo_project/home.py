"""The demo site's first page: what there is to see, the accounts, the latest executions. To look at only."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from demo_project.payments.models import Account
from reactor_coord.operations import views

ACCOUNTS_SHOWN = 40
EXECUTIONS_SHOWN = 15
SHOWN = 8


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The page. A Redis that cannot be reached is said on it; the rest is shown all the same."""
    holds = views.holds()
    return render(
        request,
        "home.html",
        {
            "accounts": Account.objects.all()[:ACCOUNTS_SHOWN],
            "shown": [views.summary(row) for row in views.listing().filter(tags__has_key="show")[:SHOWN]],
            "executions": [views.summary(row) for row in views.listing()[:EXECUTIONS_SHOWN]],
            "holds": holds.rows,
            "notice": holds.notice,
        },
    )
