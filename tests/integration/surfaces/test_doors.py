"""Doors of the admin and the API, each tried as it once stood open: names, queues, filters, lengths, other tenants' rows."""

from __future__ import annotations

import re
import sys
import time
from functools import partial
from typing import Any, ClassVar

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import path, reverse
from rest_framework.versioning import AcceptHeaderVersioning, NamespaceVersioning, URLPathVersioning
from rest_framework.views import APIView

from reactor_coord.admin.executions import ExecutionAdmin
from reactor_coord.models import Execution
from reactor_coord.operations.views import mask_secrets
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.factories import ExecutionFactory
from reactor_coord.testing.holding import hold
from tests import urls as project
from tests.integration.surfaces.conftest import ClientOf, Scene

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = "tests.live.reactors.Payment"
LIST = "reactor_coord_api:execution-list"


def start(client: Client, post_json: Any, **body: Any) -> Any:
    """Ask the API to start a payment, with these fields changed."""
    return post_json(client, reverse(LIST), {"reactor": PAYMENT, "inputs": {"key": "acct:1"}, **body})


class TestStarting:
    def test_u60_texts_of_any_length_are_answered_at_once(
        self, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        client = client_of("operator")
        began = time.process_time()
        for body in (
            {"reactor": "A" * 300_000},
            {"reactor": "redis" + "://a:b" * 50_000},
            {"inputs": {"n" * 300_000: 1}},
            {"inputs": {f"name{number}": 1 for number in range(50_000)}},
            {"inputs": {"key": "redis://" + "x:" * 150_000}},
        ):
            answer = start(client, post_json, **body)
            assert answer.status_code in (202, 400), answer.content[:200]
            assert len(answer.content) < 20_000
        assert time.process_time() - began < 20, "each in a moment: no text is read in squares of its length"

    @pytest.mark.parametrize("text", ["a" * 200_000, "a://" * 50_000, "redis://u:" + "p:" * 100_000, "a.b+" * 50_000])
    def test_u60_masking_reads_a_text_once(self, text: str) -> None:
        began = time.process_time()
        mask_secrets(text)
        assert time.process_time() - began < 5

    @pytest.mark.parametrize(
        "text, masked",
        [
            ("redis://app:hunter2@host:6379/0", "redis://app:***@host:6379/0"),
            ("at rediss://:hunter2@host and amqp://u:p@h", "at rediss://:***@host and amqp://u:***@h"),
            ("postgresql+psycopg://u:p%40@h/db", "postgresql+psycopg://u:***@h/db"),
            ("nothing to hide: at 10:30 @home", "nothing to hide: at 10:30 @home"),
        ],
    )
    def test_masking_takes_out_passwords_alone(self, text: str, masked: str) -> None:
        assert mask_secrets(text) == masked

    @pytest.mark.parametrize("name", ["this.x", "unittest.__main__.x", "antigravity.X", "tests.no_such_module.X"])
    def test_u61_no_module_is_imported_by_name(
        self, name: str, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        module = name.rpartition(".")[0]
        sys.modules.pop(module, None)
        answer = start(client_of("operator"), post_json, reactor=name)
        assert answer.status_code == 400 and answer.json()["code"] == "unknown_reactor"
        assert module not in sys.modules

    @pytest.mark.parametrize("queue", ["rc:{lock:acct:1}:hold", "celery@elsewhere", "slow\n", "no-such-queue"])
    def test_u65_a_queue_that_is_not_open_is_refused(
        self, queue: str, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        answer = start(client_of("operator"), post_json, queue=queue)
        assert answer.status_code == 400 and "queue" in answer.json()["fields"]
        assert not Execution.objects.exists()

    def test_u65_the_settings_may_open_more_queues(
        self, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches, reactor_settings: Any
    ) -> None:
        reactor_settings(API_QUEUES=["slow"])
        assert start(client_of("operator"), post_json, queue="slow").status_code == 202
        assert Execution.objects.get().queue == "slow"

    @pytest.mark.parametrize(
        "field, value",
        [
            ("tags", {"big": "x" * 20_000}),
            ("tags", {f"tag{number}": 1 for number in range(200)}),
            ("tags", {"n" * 300: 1}),
            ("countdown", 1e12),
            ("countdown", "inf"),
            ("countdown", "nan"),
            ("idempotency_key", "k" * 201),
            ("reactor", "r" * 256),
        ],
    )
    def test_u70_what_is_stored_is_bounded(
        self, field: str, value: Any, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        answer = start(client_of("operator"), post_json, **{field: value})
        assert answer.status_code == 400, answer.content
        assert field in answer.content.decode()
        assert not Execution.objects.exists()

    def test_u74_the_idempotency_key_may_come_as_a_header(
        self, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        client, body = client_of("operator"), {"reactor": PAYMENT, "inputs": {"key": "acct:1"}}
        first, second = (post_json(client, reverse(LIST), body, **{"Idempotency-Key": "checkout-5"}) for _ in range(2))
        assert (first.status_code, second.status_code) == (202, 202)
        assert first.json()["id"] == second.json()["id"]
        other = post_json(client_of("superuser"), reverse(LIST), body, **{"Idempotency-Key": "checkout-5"})
        assert other.json()["id"] != first.json()["id"], "the header is the caller's own"
        changed = {"reactor": PAYMENT, "inputs": {"key": "acct:2"}}
        refused = post_json(client, reverse(LIST), changed, **{"Idempotency-Key": "checkout-5"})
        assert refused.status_code == 409 and "key" in refused.json()["detail"]
        assert "acct:2" not in refused.content.decode() and "acct:1" not in refused.content.decode()

    @pytest.mark.parametrize("name", ["idempotncy_key", "input", "nonsense"])
    def test_u74_a_misspelt_field_is_refused_by_name(
        self, name: str, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
    ) -> None:
        answer = start(client_of("operator"), post_json, **{name: "x"})
        assert answer.status_code == 400
        assert "There is no such field" in str(answer.json()[name])
        assert not Execution.objects.exists()

    def test_u74_a_misspelt_filter_is_refused_by_name(self, client_of: ClientOf) -> None:
        answer = client_of("viewer").get(reverse(LIST), {"statsu": "parked"})
        assert answer.status_code == 400 and "status" in str(answer.json()["statsu"])


def test_u75_one_idempotency_key_with_other_inputs_is_a_conflict_that_names_the_fields(
    reactor_dispatches: Dispatches,
) -> None:
    from reactor_coord.errors import ExecutionConflict
    from tests.live.reactors import Payment

    for act in ("enqueue", "run"):
        prepared = Payment.options(idempotency_key=f"once-{act}")
        first = prepared.enqueue(key="acct:1")
        assert prepared.enqueue(key="acct:1").id == first.id
        with pytest.raises(ExecutionConflict, match="key") as caught:
            getattr(prepared, act)(key="acct:secret", name="other")
        assert "name" in str(caught.value) and "acct:secret" not in str(caught.value)


class TestReading:
    @pytest.mark.parametrize(
        "query",
        [
            {"tag": "a:NaN"},
            {"tag": "a:" + "[" * 100_000},
            {"tag": "a\x00:1"},
            {"created_after": "9999-12-31T23:59:59-23:00"},
            {"created_before": "0001-01-01T00:00:00+23:00"},
            {"reactor": "a\x00"},
            {"waiting_key": "\x00"},
            {"idempotency_key": "\ud800"},
            {"parent_step": "\x00", "roots_only": "false"},
        ],
    )
    def test_u71_a_filter_that_cannot_be_asked_is_refused(self, query: dict[str, str], client_of: ClientOf) -> None:
        query = {name: value.encode("utf-8", "surrogatepass").decode("latin-1") for name, value in query.items()}
        answer = client_of("viewer").get(reverse(LIST), query)
        assert answer.status_code in (200, 400), answer.content
        if answer.status_code == 200:
            assert answer.json()["results"] == []

    @pytest.mark.parametrize(
        "query",
        [
            {"q": "\x00"},
            {"of": "x\x00"},
            {"of": f"{'0' * 8}-0000-7000-8000-{'0' * 12}/\x00"},
            {"reactor": "\x00"},
            {"created_at__gte": "9999-12-31T23:59:59-23:00"},
        ],
    )
    def test_u71_the_admins_list_opens_whatever_is_asked(self, query: dict[str, str], client_of: ClientOf) -> None:
        answer = client_of("viewer").get(reverse("admin:reactor_coord_execution_changelist"), query, follow=True)
        assert answer.status_code == 200

    @pytest.mark.parametrize("method", ["options", "head", "get"])
    @pytest.mark.parametrize("page", ["docs", "schema"])
    def test_u72_every_method_of_the_documentation_answers(self, method: str, page: str, client_of: ClientOf) -> None:
        assert getattr(client_of("viewer"), method)(reverse(f"reactor_coord_api:{page}")).status_code == 200

    @pytest.mark.parametrize(
        "lookup",
        [
            "inputs__icontains",
            "inputs__card__v__startswith",
            "result__contains",
            "waiting_on__key",
            "parent__inputs__icontains",
            "tree__inputs__icontains",
            "steps__arguments__icontains",
            "idempotency_key__startswith",
        ],
    )
    def test_u62_no_column_is_searched_that_is_not_a_filter(self, lookup: str, client_of: ClientOf) -> None:
        ExecutionFactory.create(inputs={"card": {"v": "4242"}})
        url = reverse("admin:reactor_coord_execution_changelist")
        assert client_of("viewer").get(url, {lookup: "4"}).status_code == 400
        assert client_of("viewer").get(url, {"status__exact": "ready"}).status_code == 200

    def test_u67_who_may_change_may_view(self, client_of: ClientOf) -> None:
        row = ExecutionFactory.create()
        client = client_of("staff")
        user = User.objects.get(username="staff")
        user.user_permissions.add(Permission.objects.get(codename="change_execution"))
        for url in (
            reverse(LIST),
            reverse("reactor_coord_api:execution-detail", args=[row.pk]),
            reverse("admin:reactor_coord_execution_changelist"),
            reverse("admin:reactor_coord_execution_change", args=[row.pk]),
        ):
            assert client.get(url).status_code == 200, url


@pytest.mark.parametrize("method", ["get", "post"])
def test_u66_pages_and_acts_of_a_narrowed_admin_know_its_rows_alone(
    method: str, scene: Scene, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = ExecutionAdmin.get_queryset
    monkeypatch.setattr(
        ExecutionAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tags__tenant="mine")
    )
    client = client_of("operator")
    ask = partial(getattr(client, method), data={"reason": "x"})
    for name in ("cancel", "undo", "resume", "retry", "close"):
        assert ask(reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, name])).status_code == 404, name
    if method == "get":
        assert ask(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).status_code == 404
        assert ask(reverse("admin:reactor_coord_execution_history", args=[scene.row.pk])).status_code == 302
        listed = client.get(reverse("admin:reactor_coord_execution_changelist"))
        assert not listed.context["cl"].result_list
    assert scene.again().status == "parked" and not scene.again().cancel_requested
    Execution.objects.filter(pk=scene.row.pk).update(tags={"tenant": "mine"})
    assert client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).status_code == 200


@pytest.mark.parametrize("primitive, options", [
    ("rate_limit", {"limit": 1, "period": "hour"}), ("period", {"every": "month"}), ("lock", {}), ("semaphore", {}),
])  # fmt: skip
def test_u72_a_key_that_no_page_can_show_is_listed_all_the_same(
    primitive: str, options: dict[str, Any], client_of: ClientOf, reactor_dispatches: Dispatches
) -> None:
    client = client_of("superuser")
    with hold("k\ud800\udfff lone", primitive, **options):
        for page in ("holds", "waiters", "limits", "periods", "lines", "parks"):
            assert client.get(reverse(f"reactor_coord_api:coordination-{page}")).status_code == 200, page
        assert client.get(reverse("admin:reactor_coord_coordination")).status_code == 200


def test_u69_no_text_of_a_row_moves_a_terminals_cursor_or_forges_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    nasty = "a\nfailed  forged\x9b31m\u202egnp\u2066x\u2028y\x1b[2J"
    ExecutionFactory.create(status="parked", park_kind="contention", waiting_on={"key": nasty, "primitive": "lock"})
    call_command("executions")
    shown = capsys.readouterr().out
    assert not any(each in shown for each in "\x9b\u202e\u2066\u2028\x1b")
    assert not any(line.startswith("failed") for line in shown.splitlines())


@pytest.mark.parametrize("scheme", [URLPathVersioning, NamespaceVersioning, AcceptHeaderVersioning])
def test_u33_the_projects_versioning_is_not_the_apis(
    scheme: Any, monkeypatch: pytest.MonkeyPatch, client_of: ClientOf, post_json: Any, reactor_dispatches: Dispatches
) -> None:
    monkeypatch.setattr(scheme, "allowed_versions", ["v1"])
    monkeypatch.setattr(scheme, "default_version", "v0")  # of no path here, so every view that inherits it answers 404
    monkeypatch.setattr(APIView, "versioning_class", scheme)
    client = client_of("operator")
    assert start(client, post_json).status_code == 202
    for name in ("docs", "schema", "execution-list", "coordination-parks"):
        assert client.get(reverse(f"reactor_coord_api:{name}")).status_code == 200, name


BACKSTAGE = admin.AdminSite(name="backstage")
BACKSTAGE.register(Execution, ExecutionAdmin)


class TwoSites:
    """Addresses of a project with a second admin."""

    urlpatterns: ClassVar[list[Any]] = [path("backstage/", BACKSTAGE.urls), *project.urlpatterns]


def test_u38_the_links_of_a_second_site_stay_in_it(scene: Scene, client_of: ClientOf, settings: Any) -> None:
    settings.ROOT_URLCONF = TwoSites
    client, row = client_of("operator"), scene.row
    begin = reverse("admin:index", current_app="backstage")
    for page in (
        f"{begin}reactor_coord/execution/{row.pk}/change/",
        f"{begin}reactor_coord/execution/{row.pk}/cancel/",
        f"{begin}reactor_coord/execution/coordination/",
    ):
        text = client.get(page).content.decode()
        links = re.findall(r'href="([^"]*reactor_coord[^"]*)"', text)
        links = [link for link in links if not link.startswith("/static/")]
        assert links and all(link.startswith(begin) for link in links), (page, links)
    assert client.post(f"{begin}reactor_coord/execution/{row.pk}/cancel/", {"reason": "x"})["Location"].startswith(
        begin
    )
