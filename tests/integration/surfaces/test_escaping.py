"""B193: markup in any stored field is inert on every page. B200: what is redacted is shown nowhere."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from io import StringIO
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from reactor_coord import Input, Reactor, Step, step, with_lock
from reactor_coord.coordination import Requester, Window, locks, ordered_lines, periods, rate_limits
from reactor_coord.models import Execution
from reactor_coord.storage import codec
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.factories import ExecutionFactory, StepRunFactory, TraceEventFactory

from .conftest import ClientOf

pytestmark = pytest.mark.django_db(transaction=True)

NASTY = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{12345*6789}}"
TAG = "<script>alert(1)</script>"  # for the narrow columns
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def _fill(status: str) -> Execution:
    """An execution with markup in every field that holds text."""
    waiting = {
        "path": f"{NASTY}/{NASTY}",
        "reactor": NASTY,
        "step": NASTY,
        "primitive": "lock",
        "key": NASTY,
        "keys": [NASTY],
        "holder": NASTY,
        "holder_execution": "",
        "place": 1,
        "since": timezone.now().isoformat(),
        "until": timezone.now().isoformat(),
        "attempts": 2,
    }
    failure = {
        "step": NASTY,
        "reactor": NASTY,
        "error_type": NASTY,
        "message": NASTY,
        "arguments": {NASTY: NASTY},
        "rollback_failures": [
            {"step": NASTY, "kind": NASTY, "key": NASTY, "reason": NASTY, "message": NASTY, "reactor": NASTY}
        ],
    }
    row: Execution = ExecutionFactory.create(
        status=status,
        park_kind="contention" if status == "parked" else "",
        reactor=NASTY,
        label=NASTY,
        inputs={NASTY: NASTY},
        result={"x": NASTY},
        failure=failure,
        reason=NASTY,
        idempotency_key=f"{status}{NASTY}",
        queue=NASTY,
        tags={NASTY: NASTY},
        worker=NASTY,
        waiting_on=waiting if status == "parked" else None,
        waiting_key=NASTY if status == "parked" else "",
        resume_at=timezone.now() + dt.timedelta(minutes=1) if status == "parked" else None,
        cancel_reason=NASTY,
    )
    StepRunFactory.create(
        execution=row,
        step=NASTY,
        kind="step",
        status="failed",
        arguments={NASTY: NASTY},
        result=[NASTY],
        error={"type": NASTY, "message": NASTY, "traceback": [NASTY, NASTY], "began": True, "retryable": False},
        reason=NASTY,
        correlation_id=NASTY,
        rollback_failure={"kind": NASTY, "key": NASTY, "reason": NASTY, "message": NASTY},
        coordination=[{"primitive": NASTY, "key": NASTY, "state": NASTY, "fence": 7, "since": None}],
    )
    ExecutionFactory.create(
        root=row, parent=row, parent_step=NASTY, reactor=NASTY, label=NASTY, reason=NASTY, element_index=0
    )
    ExecutionFactory.create(failed=True, parent=row, parent_step=NASTY, reactor=NASTY, label=NASTY, reason=NASTY)
    TraceEventFactory.create(
        execution=row, step=NASTY, primitive=TAG, key=NASTY, data={NASTY: NASTY, "held_by": [NASTY]}
    )
    return row


def test_b193_admin_pages_escape_every_field(client_of: ClientOf) -> None:
    client = client_of("superuser")
    who = Requester(owner=NASTY, claim="c", wake="w", execution="", reactor=NASTY, step=NASTY)
    locks().take([NASTY], who, ttl=30)
    locks().take([NASTY], Requester(owner="o2", claim="c2", wake="w2", reactor=NASTY, step=NASTY), ttl=30)
    for status in ("parked", "failed", "completed"):
        row = _fill(status)
        for url in (
            reverse("admin:reactor_coord_execution_changelist"),
            f"{reverse('admin:reactor_coord_execution_changelist')}?reactor=%3Cscript%3Ealert(1)%3C/script%3E&q=%3Cscript%3E",
            reverse("admin:reactor_coord_execution_change", args=[row.pk]),
            f"{reverse('admin:reactor_coord_execution_changelist')}?of={row.pk}/{quote(NASTY)}",
            reverse("admin:reactor_coord_execution_change", args=[row.children.exclude(root=row).get().pk]),
            reverse("admin:reactor_coord_execution_history", args=[row.pk]),
            reverse("admin:reactor_coord_execution_act", args=[row.pk, "cancel"]),
            reverse("admin:reactor_coord_coordination"),
        ):
            _assert_inert(client, url)
        page = client.get(reverse("admin:reactor_coord_execution_change", args=[row.pk])).content.decode()
        assert ESCAPED in page and "{{12345*6789}}" in page
    hold_ = next(iter(client.get(reverse("admin:reactor_coord_coordination")).context["holds"].rows))
    asked = {"key": NASTY, "primitive": "lock", "fence": hold_.fence}
    _assert_inert(client, reverse("admin:reactor_coord_release"), asked)
    _assert_inert(client, reverse("admin:reactor_coord_release"), {**asked, "fence": 1}, follow=True)
    locks().release_by_force(NASTY, fence=hold_.fence)


def test_b193_pages_of_the_other_primitives_escape_every_name(client_of: ClientOf, post_json: Any) -> None:
    client = client_of("superuser")
    who = Requester(owner=NASTY, claim="c", wake="w", execution=NASTY, reactor=NASTY, step=NASTY)
    rate_limits().charge(NASTY, f"{NASTY}|{NASTY}/{NASTY}", "t", [Window(1, 60)], "fixed_window", plans=True)
    rate_limits().charge(NASTY, f"{NASTY}|{NASTY}/{NASTY}", "t2", [Window(1, 60)], "fixed_window", plans=True)
    bucket, _ = periods().look(NASTY, "day", "UTC")
    periods().mark(NASTY, bucket, NASTY)
    ordered_lines().enter(NASTY, NASTY, who, poison_timeout=60, ttl=60)
    url = reverse("admin:reactor_coord_coordination")
    _assert_inert(client, url)
    seen = client.get(url).context
    (line,), (limit,), (mark,) = seen["lines"].rows, seen["limits"].rows, seen["buckets"].rows
    (slot,) = limit.planned
    named: dict[str, dict[str, Any]] = {
        "skip": {"position": 1, "epoch": line.epoch},
        "reset": {"epoch": line.epoch},
        "clear": {"bucket": mark.bucket, "by": NASTY},
        "forget": {"who": slot.who, "at": slot.at},
        "drop": {"primitive": "lock", "ticket": 1},
        "release": {"primitive": NASTY, "fence": 1},
    }
    for name, each in named.items():
        where = reverse(f"admin:reactor_coord_{name}")
        _assert_inert(client, where, {"key": NASTY, **each}, follow=True)
        changed = {key: "1" if key in {"epoch", "at"} else value for key, value in each.items()}
        _assert_inert(client, where, {"key": NASTY, **changed}, follow=True)
    for name in ("limits", "periods", "lines"):
        where = reverse(f"reactor_coord_api:coordination-{name}")
        shown = client.get(where, headers={"Accept": "text/html"}).content.decode()
        assert "<script>alert" not in shown and "<img src=x" not in shown
    answer = client.post(
        reverse("admin:reactor_coord_reset"), {"key": NASTY, "epoch": line.epoch, "reason": NASTY}, follow=True
    )
    assert "<script>alert" not in answer.content.decode() and "begins afresh" in answer.content.decode()


def test_b193_messages_and_history_escape_the_reason(client_of: ClientOf) -> None:
    client = client_of("superuser")
    row = ExecutionFactory.create(ready=True)
    url = reverse("admin:reactor_coord_execution_act", args=[row.pk, "cancel"])
    answer = client.post(url, {"reason": NASTY}, follow=True)
    assert "<script>alert" not in answer.content.decode()
    _assert_inert(client, reverse("admin:reactor_coord_execution_history", args=[row.pk]))


def test_b193_the_api_answers_json_and_its_browsable_pages_escape(client_of: ClientOf) -> None:
    client = client_of("superuser")
    row = _fill("parked")
    for name, args in (
        ("execution-list", []),
        ("execution-detail", [row.pk]),
        ("execution-trace", [row.pk]),
        ("coordination-parks", []),
    ):
        url = reverse(f"reactor_coord_api:{name}", args=args)
        answer = client.get(url)
        assert answer.headers["Content-Type"] == "application/json"
        shown = client.get(url, headers={"Accept": "text/html"}).content.decode()
        assert "<script>alert" not in shown and "<img src=x" not in shown, name


def test_a_terminal_gets_no_control_characters() -> None:
    row = ExecutionFactory.create(label="Pay\x1b[31mment", reason="\x1b]0;title\x07", reactor="a.B")
    StepRunFactory.create(execution=row, step="one", reason="\x1b[2Jgone", status="skipped")
    for command in (["executions"], ["executions", str(row.pk)]):
        out = StringIO()
        call_command(*command, stdout=out)
        assert "\x1b" not in out.getvalue() and "\x07" not in out.getvalue()


SECRET = "tok_4242424242"


@with_lock("card:{card}", ttl=5)
class Pay(Step):
    """Takes a card and fails with it in the message."""

    card = Input(str, redact=True)
    amount = Input(Decimal)

    def run(self) -> None:
        raise ValueError(f"card {self.card} was declined")


class PayByCard(Reactor):
    """Its card is nobody's business."""

    card = Input(str, redact=True)
    amount = Input(Decimal)

    pay = step(Pay)


def test_b200_a_redacted_input_is_shown_nowhere(reactor_dispatches: Dispatches, client_of: ClientOf) -> None:
    handle = PayByCard.options(idempotency_key="p1").enqueue(card=SECRET, amount=Decimal("9.50"))
    drain()
    assert handle.execution.status == "failed"
    _assert_secret_is_nowhere(client_of("superuser"), str(handle.id))
    page = (
        client_of("superuser").get(reverse("admin:reactor_coord_execution_change", args=[handle.id])).content.decode()
    )
    assert "[redacted]" in page and "9.50" in page and "declined" in page


def test_b200_nor_while_it_waits_for_a_key_made_of_it(reactor_dispatches: Dispatches, client_of: ClientOf) -> None:
    first = PayByCard.enqueue(card=SECRET, amount=Decimal("9.50"))
    drain()
    key = first.execution.step_runs.get().coordination[0]["key"]
    assert SECRET not in key
    with hold(key):
        second = PayByCard.enqueue(card=SECRET, amount=Decimal("9.50"))
        drain()
        assert second.execution.status == "parked"
        _assert_secret_is_nowhere(client_of("superuser"), str(second.id))


def test_what_people_are_shown_is_not_how_it_is_stored(client_of: ClientOf) -> None:
    stored = codec.encode({"amount": Decimal("1.10"), "token": SECRET, "day": dt.date(2026, 1, 2)}, {"token"})
    row = ExecutionFactory.create(inputs=stored)
    body = client_of("viewer").get(reverse("reactor_coord_api:execution-detail", args=[row.pk])).json()
    assert body["inputs"] == {"amount": "1.10", "token": "[redacted]", "day": "2026-01-02"}


def _assert_inert(client: Client, url: str, data: dict[str, Any] | None = None, *, follow: bool = False) -> None:
    answer = client.get(url, data, follow=follow)
    assert answer.status_code == 200, url
    page = answer.content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page, url
    assert "83810205" not in page or "{{12345*6789}}" in page or ESCAPED not in page


def _assert_secret_is_nowhere(client: Client, execution_id: str) -> None:
    urls = [
        reverse("admin:reactor_coord_execution_changelist"),
        reverse("admin:reactor_coord_execution_change", args=[execution_id]),
        reverse("admin:reactor_coord_coordination"),
        reverse("reactor_coord_api:execution-list"),
        reverse("reactor_coord_api:execution-detail", args=[execution_id]),
        reverse("reactor_coord_api:execution-trace", args=[execution_id]),
        reverse("reactor_coord_api:coordination-holds"),
        reverse("reactor_coord_api:coordination-waiters"),
        reverse("reactor_coord_api:coordination-parks"),
        reverse("reactor_coord_api:coordination-limits"),
        reverse("reactor_coord_api:coordination-periods"),
        reverse("reactor_coord_api:coordination-lines"),
    ]
    for url in urls:
        assert SECRET not in client.get(url).content.decode(), url
    for command in (["executions", execution_id], ["executions", execution_id, "--json"], ["coordination", "--json"]):
        out = StringIO()
        call_command(*command, stdout=out)
        assert SECRET not in out.getvalue(), command
