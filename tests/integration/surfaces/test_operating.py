"""What the buttons and the actions do, and what they refuse."""

from __future__ import annotations

import uuid
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import transaction
from django.urls import reverse

from reactor_coord import operations
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from tests.live.reactors import Payment
from tests.support.events import heard_signals

from .conftest import ClientOf, Scene

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = "tests.live.reactors.Payment"


class TestAdmin:
    def test_cancel_asks_for_a_reason_then_cancels_and_keeps_it(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("operator")
        url = reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, "cancel"])
        assert "Reason" in client.get(url).content.decode()
        assert client.post(url, {"reason": ""}).status_code == 200
        assert scene.again().status == "parked"
        answer = client.post(url, {"reason": "wrong amount"})
        assert answer.status_code == 302
        drain()
        row = scene.again()
        assert row.status == "cancelled" and inspect.line("acct:1") == []
        assert "wrong amount" in LogEntry.objects.get().change_message
        event = TraceEvent.objects.get(kind="cancel_requested")
        assert event.data["actor"] == "operator" and event.data["reason"] == "wrong amount"
        page = client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).content.decode()
        assert "wrong amount" in page and "Retry…" in page

    def test_a_verb_the_state_does_not_allow_is_a_message(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("operator")
        url = reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, "undo"])
        page = client.post(url, {"reason": "x"}, follow=True).content.decode()
        assert "cannot be undone now" in page and scene.again().status == "parked"

    def test_retry_leads_to_the_new_execution(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("operator")
        scene.row.cancel(reason="first")
        drain()
        url = reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, "retry"])
        answer = client.post(url, {"reason": "again"})
        fresh = Execution.objects.exclude(pk=scene.row.pk).get()
        assert answer.headers["Location"] == reverse("admin:reactor_coord_execution_change", args=[fresh.pk])

    def test_release_names_the_holder_then_wakes_the_next(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("operator")
        url = reverse("admin:reactor_coord_release")
        asked: dict[str, Any] = {"key": "acct:1", "primitive": "lock", "fence": scene.held.fence}
        page = client.get(url, asked).content.decode()
        assert str(scene.held.fence) in page and "testing.hold" in page
        scene.dispatches.clear()
        answer = client.post(url, {**asked, "reason": "stuck"}, follow=True)
        assert "was released" in answer.content.decode()
        assert scene.dispatches.ids == [str(scene.row.pk)]
        drain()
        assert scene.again().status == "completed"

    def test_b029_a_release_frees_only_the_holder_that_was_shown(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("operator")
        url = reverse("admin:reactor_coord_release")
        shown: dict[str, Any] = {"key": "acct:1", "primitive": "lock", "fence": scene.held.fence, "reason": "stuck"}
        scene.row.cancel()
        drain()
        scene.held.release()
        with hold("acct:1") as successor:
            answer = client.post(url, shown, follow=True)
            assert "Owner changed" in answer.content.decode()
            view = inspect.look("acct:1").hold
            assert view is not None and view.owner == successor.owner
            asked = client.get(url, shown, follow=True).content.decode()
            assert "Owner changed" in asked

    def test_pages_of_what_is_not_there_are_404(self, client_of: ClientOf) -> None:
        client = client_of("superuser")
        for unknown in (uuid.uuid4(), "nonsense"):
            url = f"{reverse('admin:reactor_coord_execution_changelist')}{unknown}/change/"
            assert client.get(url).status_code == 404

    def test_the_search_finds_by_id_its_end_and_idempotency_key(self, scene: Scene, client_of: ClientOf) -> None:
        other = Payment.options(idempotency_key="order-77").enqueue(key="acct:8")
        client = client_of("viewer")
        url = reverse("admin:reactor_coord_execution_changelist")
        for term, wanted in (
            (str(scene.row.pk), scene.row.pk),
            (str(scene.row.pk)[-8:], scene.row.pk),
            ("order-77", other.id),
        ):
            found = client.get(url, {"q": term}).context["cl"].result_list
            assert [row.pk for row in found] == [wanted]
        assert not client.get(url, {"q": "nothing"}).context["cl"].result_list

    def test_filters(self, scene: Scene, client_of: ClientOf) -> None:
        client = client_of("viewer")
        url = reverse("admin:reactor_coord_execution_changelist")
        for query, count in (
            ({"status__exact": "parked"}, 1),
            ({"status__exact": "failed"}, 0),
            ({"reactor": PAYMENT}, 1),
            ({"reactor": "gone.reactors.Gone"}, 0),
            ({"rollback": "incomplete"}, 0),
            ({"mode__exact": "worker"}, 1),
        ):
            assert len(client.get(url, query).context["cl"].result_list) == count, query

    def test_the_index_leads_to_coordination(self, client_of: ClientOf) -> None:
        page = client_of("viewer").get(reverse("admin:app_list", args=["reactor_coord"])).content.decode()
        assert reverse("admin:reactor_coord_coordination") in page

    def test_a_rollback_that_is_incomplete_is_listed_and_tried_again(
        self, client_of: ClientOf, reactor_dispatches: Dispatches, recorder: Any
    ) -> None:
        handle = Payment.enqueue(key="acct:5", fail_at="notify", undo_fail_at="charge")
        drain()
        client = client_of("operator")
        page = client.get(reverse("admin:reactor_coord_execution_change", args=[handle.id])).content.decode()
        assert "failed (rollback incomplete)" in page and "Left undone by the rollback" in page
        assert "the undo of charge was told to fail" in page and "Undo…" in page and "Retry…" not in page
        listed = client.get(reverse("admin:reactor_coord_execution_changelist"), {"rollback": "incomplete"})
        assert [row.pk for row in listed.context["cl"].result_list] == [handle.id]
        assert "failed (rollback incomplete)" in listed.content.decode()
        body = client.get(reverse("reactor_coord_api:execution-detail", args=[handle.id])).json()
        assert [each["step"] for each in body["rollback_failures"]] == ["charge"] and body["allowed"] == [
            "close",
            "undo",
        ]
        url = reverse("admin:reactor_coord_execution_act", args=[handle.id, "undo"])
        assert client.post(url, {"reason": "again"}).status_code == 302
        assert handle.status == "rolling_back"

    def test_a_rollback_is_closed_by_hand_once_and_the_execution_can_be_retried(
        self, client_of: ClientOf, reactor_dispatches: Dispatches, recorder: Any
    ) -> None:
        handle = Payment.enqueue(key="acct:5", fail_at="notify", undo_fail_at="charge")
        drain()
        client = client_of("operator")
        url = reverse("admin:reactor_coord_execution_act", args=[handle.id, "close"])
        shown = reverse("admin:reactor_coord_execution_change", args=[handle.id])
        assert "Close the rollback…" in client.get(shown).content.decode()
        assert client.post(url, {"reason": ""}).status_code == 200, "asked again: it wants a reason"
        assert client.post(url, {"reason": "refunded by telephone"}).status_code == 302
        page = client.get(shown).content.decode()
        assert (
            "rollback closed by hand" in page and "refunded by telephone" in page and "rollback incomplete" not in page
        )
        assert "the undo of charge was told to fail" in page, "what it left stays listed"
        assert "Undo…" not in page and "Close the rollback…" not in page and "Retry…" in page
        listed = client.get(reverse("admin:reactor_coord_execution_changelist"), {"rollback": "incomplete"})
        assert not listed.context["cl"].result_list
        assert (
            "cannot be closed: no rollback of it is incomplete now"
            in client.post(url, {"reason": "x"}, follow=True).content.decode()
        )


class TestApi:
    def test_start_answers_with_an_id_that_can_be_read_at_once(
        self, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        client = client_of("operator")
        url = reverse("reactor_coord_api:execution-list")
        body = {"reactor": PAYMENT, "inputs": {"key": "acct:1"}, "idempotency_key": "k1", "tags": {"customer": 5}}
        answer = post_json(client, url, body)
        assert answer.status_code == 202
        started = answer.json()
        assert client.get(started["url"]).json()["execution"]["id"] == started["id"]
        assert reactor_dispatches.ids == [started["id"]]
        assert post_json(client, url, body).json()["id"] == started["id"]
        assert Execution.objects.count() == 1

    def test_b170_under_atomic_requests_the_message_leaves_after_the_commit(
        self, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches, settings: Any
    ) -> None:
        client = client_of("operator")
        url = reverse("reactor_coord_api:execution-list")
        with transaction.atomic():
            answer = post_json(client, url, {"reactor": PAYMENT, "inputs": {"key": "acct:1"}})
            assert answer.status_code == 202 and reactor_dispatches.ids == []
        assert reactor_dispatches.ids == [answer.json()["id"]]
        assert client.get(answer.json()["url"]).status_code == 200

    def test_a_broker_that_is_away_is_no_failure_of_the_start(
        self, client_of: ClientOf, post_json: Any, reactor_settings: Any
    ) -> None:
        reactor_settings(DISPATCHER="tests.integration.surfaces.test_operating.BrokenDispatcher")
        answer = post_json(
            client_of("operator"),
            reverse("reactor_coord_api:execution-list"),
            {"reactor": PAYMENT, "inputs": {"key": "acct:1"}},
        )
        assert answer.status_code == 202
        row = Execution.objects.get(pk=answer.json()["id"])
        assert row.status == "ready" and row.resume_at is not None

    def test_an_unknown_reactor_is_named_with_the_likely_one(self, client_of: ClientOf, post_json: Any) -> None:
        answer = post_json(
            client_of("operator"),
            reverse("reactor_coord_api:execution-list"),
            {"reactor": "tests.live.reactors.Paymemt", "inputs": {}},
        )
        assert answer.status_code == 400
        assert "Paymemt" in answer.json()["detail"] and PAYMENT in answer.json()["detail"]

    def test_wrong_inputs_are_named_field_by_field(self, client_of: ClientOf, post_json: Any) -> None:
        answer = post_json(
            client_of("operator"),
            reverse("reactor_coord_api:execution-list"),
            {"reactor": PAYMENT, "inputs": {"seconds": "soon", "kye": "acct:1"}},
        )
        assert answer.status_code == 400
        assert set(answer.json()["fields"]) == {"seconds", "kye", "key"}
        assert not Execution.objects.exists()

    def test_a_conflict_is_409_and_says_the_state(self, scene: Scene, client_of: ClientOf, post_json: Any) -> None:
        answer = post_json(
            client_of("operator"), reverse("reactor_coord_api:execution-resume", args=[scene.row.pk]), {}
        )
        assert answer.status_code == 409 and "parked" in answer.json()["detail"]

    def test_cancel_then_retry(self, scene: Scene, client_of: ClientOf, post_json: Any) -> None:
        client = client_of("operator")
        cancelled = post_json(
            client, reverse("reactor_coord_api:execution-cancel", args=[scene.row.pk]), {"reason": "no"}
        )
        assert cancelled.status_code == 200 and cancelled.json()["status"] in {"rolling_back", "cancelled"}
        drain()
        retried = post_json(client, reverse("reactor_coord_api:execution-retry", args=[scene.row.pk]), {})
        assert retried.status_code == 200 and retried.json()["id"] != str(scene.row.pk)
        assert retried.json()["tags"]["retry_of"] == str(scene.row.pk)

    def test_b029_release_by_fence(self, scene: Scene, client_of: ClientOf, post_json: Any) -> None:
        client = client_of("operator")
        url = reverse("reactor_coord_api:coordination-release")
        wrong = post_json(client, url, {"key": "acct:1", "fence": scene.held.fence - 1, "reason": "stuck"})
        assert wrong.status_code == 409 and "Owner changed" in wrong.json()["detail"]
        assert inspect.look("acct:1").hold is not None
        right = post_json(client, url, {"key": "acct:1", "fence": scene.held.fence, "reason": "stuck"})
        assert right.status_code == 200 and right.json()["released"] is True

    @pytest.mark.parametrize(
        ("query", "count"),
        [
            ("status=parked", 1),
            ("status=failed&status=parked", 1),
            ("status=completed", 0),
            ("reactor=Payment", 1),
            (f"reactor={PAYMENT}", 1),
            ("reactor=Other", 0),
            ("waiting_key=acct:1", 1),
            ("waiting_key=acct:2", 0),
            ("tag=customer", 1),
            ("tag=customer:5", 1),
            ("tag=customer:6", 0),
            ("tag=city:Köln", 1),
            ("created_after=2020-01-01T00:00:00Z", 1),
            ("created_before=2020-01-01T00:00:00Z", 0),
            ("mode=inline", 0),
        ],
    )
    def test_filters(self, query: str, count: int, scene: Scene, client_of: ClientOf) -> None:
        Execution.objects.filter(pk=scene.row.pk).update(tags={"customer": 5, "city": "Köln"})
        answer = client_of("viewer").get(f"{reverse('reactor_coord_api:execution-list')}?{query}")
        assert answer.status_code == 200 and answer.json()["count"] == count

    def test_a_wrong_filter_is_400(self, client_of: ClientOf) -> None:
        assert (
            client_of("viewer").get(reverse("reactor_coord_api:execution-list"), {"status": "lost"}).status_code == 400
        )

    def test_b197_a_narrowed_queryset_hides_list_detail_and_actions(self, scene: Scene, client_of: ClientOf) -> None:
        from django.contrib.auth.models import User
        from rest_framework.test import APIRequestFactory, force_authenticate

        from reactor_coord.api.executions import ExecutionViewSet

        class Scoped(ExecutionViewSet):
            def get_queryset(self) -> Any:
                return super().get_queryset().filter(tags__team=self.request.user.username)

        client_of("superuser")
        user = User.objects.get(username="superuser")
        factory = APIRequestFactory()

        def ask(method: str, routes: dict[str, str], **kwargs: Any) -> Any:
            request = getattr(factory, method)("/", {}, **({"format": "json"} if method == "post" else {}))
            force_authenticate(request, user)
            return Scoped.as_view(routes)(request, **kwargs)  # type: ignore[arg-type]

        assert ask("get", {"get": "list"}).data["count"] == 0
        for method, verb in (
            ("get", "retrieve"),
            ("get", "trace"),
            ("post", "cancel"),
            ("post", "retry"),
            ("post", "undo"),
        ):
            assert ask(method, {method: verb}, id=scene.row.pk).status_code == 404, verb
        assert scene.again().status == "parked"


class BrokenDispatcher:
    """A broker nobody answers at."""

    def send(self, execution_id: str, queue: str | None, countdown: float, *, is_start: bool = False) -> None:
        raise ConnectionRefusedError("redis://app:hunter2@broker:6379")


@pytest.mark.parametrize("surface", ["admin", "api", "command"])
def test_u95_cancelling_without_a_rollback_is_offered_and_confirmed_on_every_surface(
    surface: str, scene: Scene, client_of: ClientOf, post_json: Any
) -> None:
    page = reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, "cancel"])
    client = client_of("operator")
    if surface == "admin":
        assert "Undo nothing" in client.get(page).content.decode()
        said = client.post(page, {"reason": "leave it", "as_it_stands": "on"}, follow=True).content.decode()
        assert "Cancel, undoing nothing, was accepted" in said
        assert LogEntry.objects.get().change_message == "Cancel, undoing nothing: leave it"
    elif surface == "api":
        url = reverse("reactor_coord_api:execution-cancel", args=[scene.row.pk])
        answer = post_json(client, url, {"reason": "leave it", "rollback": False}).json()
        assert (answer["status"], answer["cancel_as_it_stands"]) == ("cancelled", True)
    else:
        told = StringIO()
        call_command("execution", str(scene.row.pk), "cancel", "--no-rollback", "--reason", "leave it", stdout=told)
        assert "Nothing of what it did is undone." in told.getvalue()
    drain()
    assert scene.again().status == "cancelled" and scene.again().reason == "leave it"
    assert inspect.line("acct:1") == []
    assert not TraceEvent.objects.filter(kind__in=["rolling_back", "undone"]).exists()
    shown = client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).content.decode()
    assert "Cancelled, and nothing was undone" in shown and "Retry\u2026" not in shown


def test_a_command_takes_no_rollback_with_cancel_alone(scene: Scene) -> None:
    with pytest.raises(CommandError, match="--no-rollback belongs to cancel, not to undo"):
        call_command("execution", str(scene.row.pk), "undo", "--no-rollback")


@pytest.mark.parametrize("surface", ["api", "admin", "python"])
def test_u49_a_release_of_a_hold_that_is_no_execution_s_keeps_who_did_it_and_why(
    surface: str, scene: Scene, client_of: ClientOf, post_json: Any, caplog: pytest.LogCaptureFixture
) -> None:
    named: dict[str, Any] = {
        "key": "acct:1",
        "primitive": "lock",
        "fence": scene.held.fence,
        "reason": "stuck for an hour",
    }
    with caplog.at_level("INFO", logger="reactor_coord"), heard_signals() as heard:
        if surface == "api":
            url = reverse("reactor_coord_api:coordination-release")
            assert post_json(client_of("operator"), url, named).status_code == 200
        elif surface == "admin":
            client_of("operator").post(reverse("admin:reactor_coord_release"), named)
        else:
            assert operations.release_key(**named, actor="the night shift")
    actor = "the night shift" if surface == "python" else "operator"
    (told,) = [each for each in heard if each["kind"] == "operator"]
    event = told["event"]
    assert (event.verb, event.key, event.reason, event.actor) == ("release", "acct:1", "stuck for an hour", actor)
    assert (told["execution"], event.owner != "") == ("", True)
    (line,) = [each.getMessage() for each in caplog.records if "operator.acted" in each.getMessage()]
    assert 'reason="stuck for an hour"' in line and "key=acct:1" in line
    entries = [
        (str(each.user), each.object_id, each.object_repr, each.change_message) for each in LogEntry.objects.all()
    ]
    words = "release lock acct:1: stuck for an hour"
    assert entries == ([] if surface == "python" else [("operator", None, "acct:1", words)])


def test_an_act_by_the_api_is_in_the_history_of_the_execution_that_it_concerned(
    scene: Scene, client_of: ClientOf, post_json: Any
) -> None:
    (waiter,) = inspect.line("acct:1")
    url = reverse("reactor_coord_api:coordination-drop")
    asked = {"key": "acct:1", "ticket": waiter.ticket, "reason": "not needed"}
    assert post_json(client_of("operator"), url, asked).status_code == 200
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(scene.row.pk), "drop lock acct:1: not needed")
