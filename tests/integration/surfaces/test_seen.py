"""seen_03, seen_04: a parked execution says, on every surface, what it waits on, who holds it, and where in line it stands."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from reactor_coord import Reactor, step, with_rate_limit
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.operations import views
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from tests.live.reactors import Outer, Payment

from .conftest import ClientOf, Scene

pytestmark = pytest.mark.django_db(transaction=True)


def test_seen_03_a_park_is_not_a_failure_and_names_key_and_holder(scene: Scene) -> None:
    detail = views.detail(scene.row)
    assert detail.summary.status_label == "parked (contention)"
    assert detail.failure is None and not detail.rollback_failures
    assert (
        "lock acct:1" in detail.explain and "charge" in detail.explain and "testing.hold" not in detail.summary.reason
    )
    assert not TraceEvent.objects.filter(kind__in=["failed", "step_failed"]).exists()


def test_seen_04_the_read_model_says_per_step_what_is_coordinated(scene: Scene) -> None:
    detail = views.detail(scene.row)
    assert [step.name for step in detail.steps] == ["audit", "charge", "notify"]
    audit, charge, notify = detail.steps
    assert audit.coordination == notify.coordination == ()
    assert audit.status == "succeeded" and notify.status == "pending"
    (lock,) = charge.coordination
    assert (lock.primitive, lock.key, lock.state) == ("lock", "acct:1", "waiting")
    assert lock.holder is not None and lock.holder.owner == scene.held.owner and lock.since is not None
    wait = detail.waits_on
    assert wait is not None and wait.live
    assert (wait.step, wait.primitive, wait.key, wait.attempts, wait.place) == ("charge", "lock", "acct:1", 1, 1)
    assert wait.next_check is not None and wait.next_check > timezone.now()
    assert wait.holder is not None and wait.holder.fence == scene.held.fence


def test_seen_04_pending_then_held_then_released(scene: Scene, reactor_dispatches: Dispatches) -> None:
    fresh = Payment.enqueue(key="acct:2")
    (_, charge, _) = views.detail(Execution.objects.get(pk=fresh.id)).steps
    (lock,) = charge.coordination
    assert (lock.state, lock.declared, lock.key) == ("pending", "{key}", "")
    drain()
    (_, charge, _) = views.detail(Execution.objects.get(pk=fresh.id)).steps
    (lock,) = charge.coordination
    assert (lock.state, lock.key) == ("released", "acct:2") and lock.fence


def test_seen_04_the_api_has_all_of_it(scene: Scene, client_of: ClientOf) -> None:
    client = client_of("viewer")
    body = client.get(reverse("reactor_coord_api:execution-detail", args=[scene.row.pk])).json()
    charge = next(step for step in body["steps"] if step["name"] == "charge")
    assert charge["coordination"][0]["state"] == "waiting"
    assert charge["coordination"][0]["holder"]["owner"] == scene.held.owner
    wait = body["waits_on"]
    assert (wait["step"], wait["key"], wait["primitive"], wait["attempts"], wait["place"]) == (
        "charge",
        "acct:1",
        "lock",
        1,
        1,
    )
    assert wait["next_check"] and wait["holder"]["fence"] == scene.held.fence
    holds = client.get(reverse("reactor_coord_api:coordination-holds")).json()["results"]
    assert [(each["key"], each["owner"], each["waiting"]) for each in holds] == [("acct:1", scene.held.owner, 1)]
    waiters = client.get(reverse("reactor_coord_api:coordination-waiters")).json()["results"]
    assert [(each["key"], each["place"], each["execution"], each["kind"]) for each in waiters] == [
        ("acct:1", 1, str(scene.row.pk), "parked")
    ]
    (park,) = client.get(reverse("reactor_coord_api:coordination-parks")).json()["results"]
    assert park["execution"] == str(scene.row.pk) and park["wait"]["place"] == 1 and park["wait"]["key"] == "acct:1"
    trace = client.get(reverse("reactor_coord_api:execution-trace", args=[scene.row.pk])).json()
    assert {"refused", "parked"} <= {each["kind"] for each in trace["results"]}


def test_seen_04_the_admin_shows_it(scene: Scene, client_of: ClientOf) -> None:
    client = client_of("viewer")
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).content.decode()
    for word in ("acct:1", "charge", "waiting", "Place in line", "Next check", "parked", "refused"):
        assert word in page, word
    listed = client.get(reverse("admin:reactor_coord_execution_changelist")).content.decode()
    assert "parked (contention)" in listed and "acct:1" in listed
    coordination = client.get(reverse("admin:reactor_coord_coordination")).content.decode()
    assert coordination.count("acct:1") >= 3 and str(scene.held.fence) in coordination


def test_a_park_two_levels_down_is_shown_where_it_waits(reactor_dispatches: Dispatches) -> None:
    with hold("acct:9"):
        handle = Outer.enqueue(outer_key="o:1", middle_key="m:1", key="acct:9")
        drain()
        detail = views.detail(Execution.objects.get(pk=handle.id))
    assert detail.waits_on is not None and detail.waits_on.path == "Payment.charge"
    middle = next(step for step in detail.steps if step.name == "middle").branches[0]
    payment = next(step for step in middle.steps if step.name == "payment").branches[0]
    charge = next(step for step in payment.steps if step.name == "charge")
    assert [(each.key, each.state) for each in charge.coordination] == [("acct:9", "waiting")]
    assert [(each.key, each.state) for each in detail.coordination] == [("o:1", "parked")]
    assert [(each.key, each.state) for each in middle.coordination] == [("m:1", "parked")]
    child = views.detail(Execution.objects.get(pk=payment.id))
    assert child.waits_on is not None and child.waits_on.key == "acct:9" and child.allowed == frozenset()


class Sent(Reactor):
    """One letter a minute."""

    @step()
    @with_rate_limit("letters", limit=1, period=60)
    def send() -> str:
        return "sent"


def test_a_wait_for_a_slot_says_when_it_comes(reactor_dispatches: Dispatches) -> None:
    first, second = Sent.enqueue(), Sent.enqueue()
    drain()
    detail = views.detail(Execution.objects.get(pk=second.id))
    assert detail.summary.status == "parked" and "rate limit letters at step send; " in detail.explain
    assert "its time comes in" in detail.explain and "held by" not in detail.explain
    (send,) = detail.steps
    assert [(each.primitive, each.state) for each in send.coordination] == [("rate_limit", "waiting")]
    (send,) = views.detail(Execution.objects.get(pk=first.id)).steps
    assert [(each.primitive, each.state) for each in send.coordination] == [("rate_limit", "passed")]


def test_an_offered_key_is_its_turn(scene: Scene) -> None:
    scene.held.release()
    detail = views.detail(scene.again())
    assert "it is its turn" in detail.explain
    (lock,) = detail.steps[1].coordination
    assert lock.state in {"waiting", "granted"}


def test_a_reactors_own_lock_is_told_before_during_and_after(reactor_dispatches: Dispatches) -> None:
    handle = Outer.enqueue(outer_key="o:2", middle_key="m:2", key="acct:12")
    (own,) = views.detail(handle.execution).coordination
    assert (own.state, own.declared) == ("pending", "{outer_key}")
    with hold("acct:12"):
        drain()
        (own,) = views.detail(handle.execution).coordination
        assert (own.state, own.key) == ("parked", "o:2")
    drain()
    (own,) = views.detail(handle.execution).coordination
    assert (own.state, own.key) == ("released", "o:2")


def test_the_command_shows_the_trace_of_a_contended_run(scene: Scene) -> None:
    scene.held.release()
    drain()
    assert scene.again().status == "completed"
    out = StringIO()
    call_command("executions", str(scene.row.pk)[-8:], stdout=out)
    text = out.getvalue()
    for word in ("refused", "parked", "woken", "released", "acct:1", "completed"):
        assert word in text, f"{word} is missing in\n{text}"
    out = StringIO()
    call_command("executions", str(scene.row.pk), "--json", stdout=out)
    document: dict[str, Any] = json.loads(out.getvalue())
    assert document["summary"]["status"] == "completed" and document["trace"]


def test_without_redis_every_page_still_shows_and_says_so(scene: Scene, client_of: ClientOf, settings: Any) -> None:
    settings.CACHES = {
        "default": {
            **settings.CACHES["default"],
            "LOCATION": "redis://operator:hunter2@127.0.0.1:1/0",
        }
    }
    client = client_of("superuser")
    changelist = reverse("admin:reactor_coord_execution_changelist")
    for url in (
        reverse("admin:reactor_coord_execution_change", args=[scene.row.pk]),
        reverse("admin:reactor_coord_coordination"),
        changelist,
    ):
        answer = client.get(url)
        page = answer.content.decode()
        assert answer.status_code == 200 and "hunter2" not in page
        if url != changelist:
            assert "Redis cannot be reached" in page
    holds = client.get(reverse("reactor_coord_api:coordination-holds"))
    assert holds.status_code == 503 and "Redis" in holds.json()["detail"] and "hunter2" not in holds.content.decode()
    parks = client.get(reverse("reactor_coord_api:coordination-parks"))
    assert parks.status_code == 200 and parks.json()["results"][0]["wait"]["live"] is False
    detail = client.get(reverse("reactor_coord_api:execution-detail", args=[scene.row.pk])).json()
    assert detail["notice"] and detail["waits_on"]["holder"]["execution"] == ""
