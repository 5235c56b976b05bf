"""Six kinds of user, and an execution that waits for a key somebody else holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from reactor_coord.models import Execution
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.holding import Held
from tests.live.reactors import Payment

KINDS = ("anonymous", "plain", "staff", "viewer", "operator", "superuser")
PERMISSIONS = {"viewer": ["view_execution"], "operator": ["view_execution", "operate_execution", "release_hold"]}

ClientOf = Callable[..., Client]


@pytest.fixture
def client_of(db: None) -> ClientOf:
    """A client logged in as one of `KINDS`; with `csrf=True` it checks tokens as a browser's would be."""

    def client(kind: str, *, csrf: bool = False) -> Client:
        found = Client(enforce_csrf_checks=csrf)
        if kind == "anonymous":
            return found
        user = User.objects.filter(username=kind).first()
        if user is None:
            user = User.objects.create_user(kind, is_staff=kind != "plain", is_superuser=kind == "superuser")
            names = PERMISSIONS.get(kind, [])
            user.user_permissions.set(
                Permission.objects.filter(content_type__app_label="reactor_coord", codename__in=names)
            )
        found.force_login(user)
        return found

    return client


@dataclass(frozen=True, slots=True)
class Scene:
    """A parked execution, and who is in its way."""

    row: Execution
    held: Held
    dispatches: Dispatches

    def again(self) -> Execution:
        """The row as it is now."""
        return Execution.objects.get(pk=self.row.pk)


@pytest.fixture
def scene(transactional_db: None, reactor_dispatches: Dispatches) -> Iterator[Scene]:
    """A payment parked at `charge`, for `acct:1`, which an owner outside any execution holds."""
    with hold("acct:1") as held:
        handle = Payment.enqueue(key="acct:1", name="scene")
        drain()
        row = Execution.objects.get(pk=handle.id)
        assert row.status == "parked"
        yield Scene(row, held, reactor_dispatches)


@pytest.fixture
def post_json() -> Callable[..., Any]:
    """POST a JSON body."""

    def post(client: Client, url: str, body: Any = None, **headers: Any) -> Any:
        return client.post(url, data=body if body is not None else {}, content_type="application/json", headers=headers)

    return post
