"""A paused execution says what it asks, on every surface, and takes one answer, from any of them."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.urls import reverse

from reactor_coord import Input, Reactor, async_reactor, interrupt
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution
from reactor_coord.operations import verbs, views
from reactor_coord.testing import drain
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.testing.shapes import Asking

from .conftest import ClientOf
from .family import Anything, Approval, Signed

pytestmark = pytest.mark.django_db(transaction=True)

NASTY = "\"'><script>alert(1)</script>"
SECRET = "tok_4242424242"
ANSWER = {"approved": True, "amount": "9.50", "way": "post", "note": "fine"}


@pytest.fixture
def asked(transactional_db: None, reactor_dispatches: Dispatches) -> Execution:
    """An execution that waits for an approval."""
    return _paused(Approval, "order-1")


def _paused(reactor: Any, order: str) -> Execution:
    handle = reactor.enqueue(order=order)
    drain()
    row = Execution.objects.get(pk=handle.id)
    assert row.status == "paused"
    return row


def _admin(row: Execution) -> str:
    return reverse("admin:reactor_coord_execution_act", args=[row.pk, "resume"])


def _api(row: Execution) -> str:
    return reverse("reactor_coord_api:execution-resume", args=[row.pk])


def test_the_read_model_says_what_is_asked_in_which_shape_and_until_when(asked: Execution) -> None:
    detail = views.detail(asked)
    (question,) = detail.questions
    assert (question.step, question.correlation_id, question.execution) == ("ask", "order-1", str(asked.pk))
    assert question.since is not None and question.until is not None
    assert (question.until - question.since).total_seconds() == 3600
    assert [(each.name, each.required) for each in question.fields] == [
        ("approved", True),
        ("amount", True),
        ("way", True),
        ("note", False),
        ("code", False),
        ("lines", False),
    ]
    assert "approved: bool" in question.shape and "note: str (optional)" in question.shape
    assert detail.allowed == {"cancel", "resume"} and detail.failure is None
    assert detail.steps[0].question == question and views.questions_of(asked) == (question,)


def test_a_question_without_an_end_says_so(reactor_dispatches: Dispatches, client_of: ClientOf) -> None:
    row = _paused(Anything, "a-1")
    (question,) = views.questions_of(row)
    assert question.until is None and question.fields == ()
    wait = views.detail(row).waits_on
    assert wait is not None and wait.next_check is None
    page = client_of("viewer").get(reverse("admin:reactor_coord_execution_change", args=[row.pk])).content.decode()
    assert "it is answered" in page and "9999" not in page
    assert "9999" not in client_of("viewer").get(reverse("admin:reactor_coord_coordination")).content.decode()


def test_pages_show_it_and_offer_an_answer_to_those_who_may(asked: Execution, client_of: ClientOf) -> None:
    url = reverse("admin:reactor_coord_execution_change", args=[asked.pk])
    page = client_of("operator").get(url).content.decode()
    for word in ("Asks at ask", "order-1", "approved", "Answer…", "paused"):
        assert word in page, word
    seen = client_of("viewer").get(url).content.decode()
    assert "Asks at ask" in seen and "Answer…" not in seen
    assert client_of("viewer").get(_admin(asked)).status_code == 403
    body = client_of("viewer").get(reverse("reactor_coord_api:execution-detail", args=[asked.pk])).json()
    assert body["questions"][0]["correlation_id"] == "order-1"
    assert [each["name"] for each in body["questions"][0]["fields"]][:2] == ["approved", "amount"]
    assert body["steps"][0]["question"]["step"] == "ask"
    out = StringIO()
    call_command("executions", str(asked.pk), stdout=out)
    assert "asks at ask for order-1" in out.getvalue() and "approved: bool" in out.getvalue()


class TestAdmin:
    def test_a_form_for_the_shape(self, asked: Execution, client_of: ClientOf) -> None:
        page = client_of("operator").get(_admin(asked)).content.decode()
        assert '<select name="payload-approved" required' in page and '<option value="" selected>' in page
        assert '<option value="courier">' in page and 'name="payload-amount"' in page
        assert 'type="password" name="payload-code"' in page and '<textarea name="payload-lines"' in page

    def test_u73_nothing_is_answered_by_who_fills_in_nothing(self, asked: Execution, client_of: ClientOf) -> None:
        client = client_of("operator")
        answer = client.post(_admin(asked), {"step": "ask"})
        assert answer.status_code == 200
        assert {"payload-approved", "payload-amount"} <= set(answer.context["form"].errors)
        assert Execution.objects.get(pk=asked.pk).status == "paused"
        page = client.get(_admin(asked)).content.decode()
        assert "What it is about" in page and "order-1" in page
        assert client.post(_admin(asked), _form(approved="false", lines="[1, 2]")).status_code == 302
        drain()
        assert Execution.objects.get(pk=asked.pk).result is False

    def test_what_is_wrong_stands_beside_its_field(self, asked: Execution, client_of: ClientOf) -> None:
        client = client_of("operator")
        answer = client.post(_admin(asked), _form(amount="-1"))
        form = answer.context["form"]
        assert answer.status_code == 200 and set(form.errors) == {"payload-amount"}
        assert "greater than 0" in answer.content.decode()
        assert client.post(_admin(asked), _form(lines="[1,")).context["form"].errors.keys() == {"payload-lines"}
        answer = client.post(_admin(asked), _form(lines='["x"]'))
        assert set(answer.context["form"].errors) == {"payload-lines"}
        assert client.post(_admin(asked), _form(way="pigeon")).status_code == 200
        assert Execution.objects.get(pk=asked.pk).status == "paused" and not LogEntry.objects.exists()

    def test_an_answer_is_taken_once_and_kept_in_the_history(self, asked: Execution, client_of: ClientOf) -> None:
        client = client_of("operator")
        answer = client.post(_admin(asked), _form(reason="as agreed", lines="[1, 2]"), follow=True)
        assert "was taken" in answer.content.decode()
        assert "as agreed" in LogEntry.objects.get().change_message
        drain()
        row = Execution.objects.get(pk=asked.pk)
        assert row.status == "completed" and row.result is True
        late = client.post(_admin(asked), _form(), follow=True).content.decode()
        assert "was taken" not in late and LogEntry.objects.count() == 1

    def test_any_json_where_the_question_names_no_shape(
        self, reactor_dispatches: Dispatches, client_of: ClientOf
    ) -> None:
        row = _paused(Anything, "a-1")
        client = client_of("operator")
        assert client.post(_admin(row), {"payload-payload": "{"}).status_code == 200
        assert client.post(_admin(row), {"payload-payload": '{"x": 1}'}).status_code == 302
        drain()
        assert Execution.objects.get(pk=row.pk).result == {"x": 1}

    def test_a_question_one_level_down_is_answered_through_its_root(
        self, reactor_dispatches: Dispatches, client_of: ClientOf
    ) -> None:
        row = _paused(Signed, "s-1")
        (question,) = views.detail(row).questions
        assert question.execution != str(row.pk) and question.step == "say"
        child = Execution.objects.get(pk=question.execution)
        page = client_of("operator").get(reverse("admin:reactor_coord_execution_change", args=[child.pk]))
        assert _admin(row) in page.content.decode()
        assert client_of("operator").post(_admin(row), {"payload-payload": "7"}).status_code == 302
        drain()
        assert Execution.objects.get(pk=row.pk).status == "completed"

    def test_markup_in_a_question_is_inert(self, reactor_dispatches: Dispatches, client_of: ClientOf) -> None:
        row = _paused(Approval, NASTY)
        client = client_of("operator")
        for url in (_admin(row), reverse("admin:reactor_coord_execution_change", args=[row.pk])):
            assert "<script>alert" not in client.get(url).content.decode()
        page = client.post(_admin(row), _form(note=NASTY, amount=NASTY)).content.decode()
        assert "<script>alert" not in page

    def test_a_secret_is_not_shown_again(self, asked: Execution, client_of: ClientOf) -> None:
        page = client_of("operator").post(_admin(asked), _form(code=SECRET, amount="-1")).content.decode()
        assert SECRET not in page


class TestApi:
    def test_a_wrong_payload_is_400_field_by_field(self, asked: Execution, client_of: ClientOf, post_json: Any) -> None:
        wrong = {**ANSWER, "amount": "much", "colour": 1}
        answer = post_json(client_of("operator"), _api(asked), {"step": "ask", "payload": wrong})
        assert answer.status_code == 400 and set(answer.json()["fields"]) == {"amount", "colour"}
        missing = post_json(client_of("operator"), _api(asked), {"payload": None})
        assert missing.status_code == 400 and Execution.objects.get(pk=asked.pk).status == "paused"

    def test_one_answer_then_409(self, asked: Execution, client_of: ClientOf, post_json: Any) -> None:
        client = client_of("operator")
        assert post_json(client, _api(asked), {"step": "other", "payload": ANSWER}).status_code == 409
        answer = post_json(client, _api(asked), {"step": "ask", "payload": ANSWER})
        assert answer.status_code == 200 and answer.json()["status"] == "ready"
        again = post_json(client, _api(asked), {"step": "ask", "payload": ANSWER})
        assert again.status_code == 409
        drain()
        assert Execution.objects.get(pk=asked.pk).status == "completed"
        assert post_json(client, _api(asked), {"payload": ANSWER}).status_code == 409

    @pytest.mark.parametrize("kind", ["anonymous", "plain", "staff", "viewer"])
    def test_who_may_not_answer(self, kind: str, asked: Execution, client_of: ClientOf, post_json: Any) -> None:
        assert post_json(client_of(kind), _api(asked), {"payload": ANSWER}).status_code == 403
        assert client_of(kind).post(_admin(asked), _form()).status_code in {302, 403}
        assert Execution.objects.get(pk=asked.pk).status == "paused"

    def test_it_needs_a_token(self, asked: Execution, client_of: ClientOf, post_json: Any) -> None:
        client = client_of("operator", csrf=True)
        assert post_json(client, _api(asked), {"payload": ANSWER}).status_code == 403
        assert client.post(_admin(asked), _form()).status_code == 403
        assert Execution.objects.get(pk=asked.pk).status == "paused"


def test_b200_a_redacted_answer_is_shown_nowhere(asked: Execution, client_of: ClientOf, post_json: Any) -> None:
    client = client_of("superuser")
    answer = post_json(client, _api(asked), {"payload": {**ANSWER, "code": SECRET}})
    assert answer.status_code == 200
    for _ in range(2):
        for url in (
            reverse("admin:reactor_coord_execution_change", args=[asked.pk]),
            reverse("reactor_coord_api:execution-detail", args=[asked.pk]),
            reverse("reactor_coord_api:execution-trace", args=[asked.pk]),
        ):
            assert SECRET not in client.get(url).content.decode()
        out = StringIO()
        call_command("executions", str(asked.pk), "--json", stdout=out)
        assert SECRET not in out.getvalue()
        drain()


class TestCommand:
    def test_resume_with_a_payload_and_a_step(self, asked: Execution) -> None:
        name = str(asked.pk)
        with pytest.raises(CommandError, match=r"(?s)Wrong input.*amount"):
            call_command("execution", name, "resume", payload=json.dumps({**ANSWER, "amount": 0}))
        with pytest.raises(CommandError, match="open: ask"):
            call_command("execution", name, "resume", payload=json.dumps(ANSWER), step="other")
        out = StringIO()
        call_command("execution", name, "resume", payload=json.dumps(ANSWER), step="ask", stdout=out)
        assert "accepted" in out.getvalue()
        drain()
        assert Execution.objects.get(pk=asked.pk).status == "completed"


def _form(**changes: str) -> dict[str, str]:
    values = {"approved": "true", "amount": "9.50", "way": "post", "note": "", "code": "", "lines": ""}
    reason = changes.pop("reason", "")
    named = {f"payload-{name}": value for name, value in {**values, **changes}.items()}
    return {**named, "reason": reason, "step": "ask"}


def test_an_answer_to_a_step_that_asks_nothing_names_what_does(asked: Execution) -> None:
    with pytest.raises(ExecutionConflict, match=r"asks nothing at step 'reviw' \(open: ask\)"):
        verbs.resume(asked, step="reviw", payload={})


class AsksBeside(Reactor):
    """The question is asked by a unit."""

    order = Input(str)

    class Review(Reactor):
        """One question."""

        order = Input(str)
        answer = interrupt(correlation_id=order)

    review = async_reactor(Review)


@pytest.mark.parametrize("reactor, inputs", [(Approval, "order"), (Asking, "key"), (AsksBeside, "order")])
@pytest.mark.parametrize("surface", ["api", "admin", "command"])
def test_u95_an_execution_is_found_by_the_correlation_id_of_what_it_asks(
    surface: str, reactor: Any, inputs: str, client_of: ClientOf, transactional_db: None, reactor_dispatches: Dispatches
) -> None:
    wanted = reactor.enqueue(**{inputs: "order 7/a"})
    reactor.enqueue(**{inputs: "order 8"})
    drain(timeout=20)
    for term, ids in (("order 7/a", [str(wanted.id)]), ("order 7", []), ("x" * 300, [])):
        assert _found(surface, term, client_of) == ids


def _found(surface: str, term: str, client_of: ClientOf) -> list[str]:
    """The ids that a search by this correlation id shows."""
    if surface == "api":
        url = reverse("reactor_coord_api:execution-list")
        return [each["id"] for each in client_of("viewer").get(url, {"correlation_id": term}).json()["results"]]
    if surface == "admin":
        url = reverse("admin:reactor_coord_execution_changelist")
        page = client_of("viewer").get(url, {"q": term})
        return [str(row.pk) for row in page.context["cl"].result_list]
    told = StringIO()
    call_command("executions", "--correlation-id", term, "--json", stdout=told)
    return [each["id"] for each in json.loads(told.getvalue())]


def test_an_answered_question_still_finds_its_execution(
    asked: Execution, client_of: ClientOf, reactor_dispatches: Dispatches
) -> None:
    verbs.resume(asked, payload=ANSWER)
    drain(timeout=20)
    asked.refresh_from_db()
    assert asked.status == "completed"
    assert _found("api", "order-1", client_of) == [str(asked.pk)]
