"""B195: every URL, every kind of user, every method. GET never changes anything; a POST needs its permission and a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, TraceEvent

from .conftest import KINDS, ClientOf, Scene

pytestmark = pytest.mark.django_db(transaction=True)

VIEWERS = {"viewer", "operator", "superuser"}
OPERATORS = {"operator", "superuser"}

Url = Callable[[Scene], str]


def _admin(name: str, *words: Any) -> Url:
    return lambda scene: reverse(f"admin:reactor_coord_{name}", args=[scene.row.pk, *words] if words else None)


def _one(name: str) -> Url:
    return lambda scene: reverse(f"admin:reactor_coord_execution_{name}", args=[scene.row.pk])


def _api(name: str, *, one: bool = False) -> Url:
    return lambda scene: reverse(f"reactor_coord_api:{name}", args=[scene.row.pk] if one else None)


def _release(scene: Scene) -> str:
    return f"{reverse('admin:reactor_coord_release')}?key=acct:1&primitive=lock&fence={scene.held.fence}"


def _drop(scene: Scene) -> str:
    (waiter,) = inspect.line("acct:1")
    return f"{reverse('admin:reactor_coord_drop')}?key=acct:1&primitive=lock&ticket={waiter.ticket}"


NAMED: dict[str, dict[str, Any]] = {
    "skip": {"key": "k", "position": 1, "epoch": 1},
    "reset": {"key": "k", "epoch": 1},
    "clear": {"key": "k", "bucket": "day:1", "by": "x"},
    "forget": {"key": "k", "who": "x", "at": 1.5},
}
"""Acts on what is not there: who may is sent back, who may not is refused."""

ADMIN_PAGES: dict[str, tuple[Url, set[str]]] = {
    "list": (_admin("execution_changelist"), VIEWERS),
    "one": (_one("change"), VIEWERS),
    "history": (_one("history"), VIEWERS),
    "of_one": (lambda scene: f"{_admin('execution_changelist')(scene)}?of={scene.row.pk}", VIEWERS),
    "coordination": (_admin("coordination"), VIEWERS),
    "release": (_release, OPERATORS),
    "drop": (_drop, OPERATORS),
    "cancel": (_admin("execution_act", "cancel"), OPERATORS),
    "retry": (_admin("execution_act", "retry"), OPERATORS),
    "undo": (_admin("execution_act", "undo"), OPERATORS),
    "close": (_admin("execution_act", "close"), OPERATORS),
    "resume": (_admin("execution_act", "resume"), OPERATORS),
}
API_PAGES: dict[str, Url] = {
    "list": _api("execution-list"),
    "one": _api("execution-detail", one=True),
    "trace": _api("execution-trace", one=True),
    "holds": _api("coordination-holds"),
    "waiters": _api("coordination-waiters"),
    "parks": _api("coordination-parks"),
    "limits": _api("coordination-limits"),
    "periods": _api("coordination-periods"),
    "lines": _api("coordination-lines"),
    "schema": _api("schema"),
    "docs": _api("docs"),
}
API_ACTIONS: dict[str, tuple[Url, dict[str, Any]]] = {
    "start": (_api("execution-list"), {"reactor": "tests.live.reactors.Payment", "inputs": {"key": "acct:7"}}),
    "cancel": (_api("execution-cancel", one=True), {"reason": "test"}),
    "retry": (_api("execution-retry", one=True), {}),
    "undo": (_api("execution-undo", one=True), {}),
    "close": (_api("execution-close", one=True), {"reason": "test"}),
    "resume": (_api("execution-resume", one=True), {}),
    "release": (_api("coordination-release"), {"key": "acct:1", "fence": 1, "reason": "test"}),
    "drop": (_api("coordination-drop"), {"key": "acct:1", "ticket": 999, "reason": "test"}),
    **{name: (_api(f"coordination-{name}"), {**named, "reason": "test"}) for name, named in NAMED.items()},
}


def _state(scene: Scene) -> tuple[Any, ...]:
    row = scene.again()
    columns = (row.status, row.cancel_requested, row.updated_at, row.waiting_on)
    return (*columns, Execution.objects.count(), TraceEvent.objects.count())


@pytest.mark.parametrize("kind", KINDS)
def test_b195_admin_pages_open_for_those_who_may_and_change_nothing(
    kind: str, scene: Scene, client_of: ClientOf
) -> None:
    client = client_of(kind)
    before = _state(scene)
    for name, (url, allowed) in ADMIN_PAGES.items():
        for method in ("get", "head"):
            answer = getattr(client, method)(url(scene))
            wanted = 200 if kind in allowed else 302 if kind in {"anonymous", "plain"} else 403
            assert answer.status_code == wanted, (name, method)
            if wanted == 302:
                assert "/login/" in answer.headers["Location"]
    assert _state(scene) == before


@pytest.mark.parametrize("kind", KINDS)
def test_b195_acts_on_what_is_not_there_change_nothing(kind: str, scene: Scene, client_of: ClientOf) -> None:
    client = client_of(kind)
    before = _state(scene)
    for name, named in NAMED.items():
        url = reverse(f"admin:reactor_coord_{name}")
        for method in ("get", "head", "post"):
            answer = getattr(client, method)(url, {**named, "reason": "test"})
            if kind in {*OPERATORS, "anonymous", "plain"}:
                to = reverse("admin:reactor_coord_coordination") if kind in OPERATORS else "/login/"
                assert answer.status_code == 302 and to in answer.headers["Location"], (name, method)
            else:
                assert answer.status_code == 403, (name, method)
        for method in ("put", "delete", "patch"):
            assert getattr(client, method)(url).status_code in {302, 403, 405}
    assert _state(scene) == before


@pytest.mark.parametrize("kind", KINDS)
def test_b195_api_pages_open_for_those_who_may_and_change_nothing(kind: str, scene: Scene, client_of: ClientOf) -> None:
    client = client_of(kind)
    before = _state(scene)
    for name, url in API_PAGES.items():
        for method in ("get", "head"):
            answer = getattr(client, method)(url(scene))
            assert answer.status_code == (200 if kind in VIEWERS else 403), (name, method)
    for name, (url, _) in API_ACTIONS.items():
        for method in ("get", "head") if name != "start" else ():
            assert getattr(client, method)(url(scene)).status_code in {403, 405}, (name, method)
    assert _state(scene) == before


@pytest.mark.parametrize("kind", KINDS)
def test_b195_api_actions_need_their_permission(kind: str, scene: Scene, client_of: ClientOf, post_json: Any) -> None:
    client = client_of(kind)
    before = _state(scene)
    for name, (url, body) in API_ACTIONS.items():
        answer = post_json(client, url(scene), body)
        if kind in OPERATORS:
            assert answer.status_code in {200, 202, 409}, (name, answer.content)
        else:
            assert answer.status_code == 403, (name, answer.content)
    if kind not in OPERATORS:
        assert _state(scene) == before


@pytest.mark.parametrize("kind", ["operator", "superuser"])
def test_b195_a_session_needs_a_token(kind: str, scene: Scene, client_of: ClientOf, post_json: Any) -> None:
    client = client_of(kind, csrf=True)
    before = _state(scene)
    for name, (url, body) in API_ACTIONS.items():
        assert post_json(client, url(scene), body).status_code == 403, name
    for name, (url, _) in ADMIN_PAGES.items():
        assert client.post(url(scene), {"reason": "test"}).status_code == 403, name
    for name, named in NAMED.items():
        answer = client.post(reverse(f"admin:reactor_coord_{name}"), {**named, "reason": "test"})
        assert answer.status_code == 403, name
    assert _state(scene) == before


@pytest.mark.parametrize("kind", ["staff", "viewer"])
def test_b195_admin_verbs_are_refused_without_the_permission(kind: str, scene: Scene, client_of: ClientOf) -> None:
    client = client_of(kind)
    before = _state(scene)
    for verb in ("cancel", "retry", "undo", "close", "resume"):
        url = reverse("admin:reactor_coord_execution_act", args=[scene.row.pk, verb])
        assert client.post(url, {"reason": "test"}).status_code == 403
    body = {"key": "acct:1", "primitive": "lock", "fence": scene.held.fence, "reason": "test"}
    assert client.post(reverse("admin:reactor_coord_release"), body).status_code == 403
    assert _state(scene) == before
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[scene.row.pk])).content.decode()
    assert "Cancel…" not in page


def test_one_permission_does_not_open_the_other(scene: Scene, client_of: ClientOf, post_json: Any) -> None:
    from django.contrib.auth.models import Permission, User

    client_of("operator")
    user = User.objects.get(username="operator")
    user.user_permissions.remove(Permission.objects.get(codename="release_hold"))
    client = Client()
    client.force_login(user)
    url, body = API_ACTIONS["release"]
    answer = post_json(client, url(scene), body)
    assert answer.status_code == 403 and "release_hold" in answer.json()["detail"]
    assert client.get(_release(scene)).status_code == 403


def test_pages_that_only_show_refuse_a_post(scene: Scene, client_of: ClientOf) -> None:
    client = client_of("superuser")
    before = _state(scene)
    for name in ("list", "one", "coordination"):
        assert client.post(ADMIN_PAGES[name][0](scene)).status_code == 405, name
    assert _state(scene) == before


def test_rows_are_neither_added_changed_nor_deleted_by_hand(scene: Scene, client_of: ClientOf) -> None:
    client = client_of("superuser")
    assert client.get(reverse("admin:reactor_coord_execution_add")).status_code == 403
    delete = reverse("admin:reactor_coord_execution_delete", args=[scene.row.pk])
    assert client.get(delete).status_code == 403
    assert client.post(delete, {"post": "yes"}).status_code == 403
    assert Execution.objects.filter(pk=scene.row.pk).exists()
