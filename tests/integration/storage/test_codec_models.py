"""Values on a real database: model instances by reference, and that a stored value is the value that was given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from hypothesis import HealthCheck, given, settings

from reactor_coord.errors import CodecError
from reactor_coord.storage import codec, store
from tests.integration.storage.rows import fresh, running, step
from tests.support.counting import counted_queries
from tests.unit.test_codec import TREES, VALUES, same

pytestmark = pytest.mark.django_db


def test_an_instance_is_a_reference_and_loaded_anew() -> None:
    group = Group.objects.create(name="before")

    encoded = codec.encode({"group": [group]})
    Group.objects.update(name="after")

    assert encoded == {"group": [{"$rc": "model", "type": "auth.group", "v": group.pk, "db": "default"}]}
    [loaded] = codec.decode(encoded)["group"]
    assert (type(loaded), loaded.pk, loaded.name) == (Group, group.pk, "after")
    assert codec.display(encoded) == {"group": [f"auth.group {group.pk}"]}


def test_an_execution_can_be_a_value() -> None:
    execution = running()
    assert codec.decode(codec.encode(execution)) == execution


def test_showing_a_reference_costs_no_query() -> None:
    encoded = codec.encode(Group.objects.create(name="x"))
    with counted_queries() as queries:
        codec.display(encoded)
    assert len(queries) == 0


def test_an_instance_that_is_gone_is_said_to_be() -> None:
    group = Group.objects.create(name="x")
    encoded = codec.encode([group])
    key = group.pk
    group.delete()

    with pytest.raises(
        CodecError, match=rf"\[0\] \(auth\.group\) cannot be read: auth\.group {key} does not exist"
    ) as caught:
        codec.decode(encoded)
    assert caught.value.path == "[0]"
    with pytest.raises(CodecError, match=r"there is no model 'auth\.gone'"):
        codec.decode({"$rc": "model", "type": "auth.gone", "v": 1, "db": "default"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            lambda: Group(name="x"),
            r"result\.group is a django.*Group, which cannot be stored: it is not saved; save it first",
        ),
        (lambda: Group.objects.all(), r"result\.group is a django.*QuerySet.*list\(queryset"),
        (lambda: Group.objects, "Manager"),
    ],
)
def test_what_is_no_saved_row_is_refused(value: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        codec.encode({"group": value()}, path="result")


def test_a_deleted_instance_is_not_a_saved_one() -> None:
    user = User.objects.create(username="x")
    user.delete()
    with pytest.raises(CodecError, match="not saved"):
        codec.encode(user)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_stored_value_is_the_value_given(value: Any) -> None:
    _is_stored_as_given(value)


@given(TREES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_stored_tree_is_the_tree_given(value: Any) -> None:
    _is_stored_as_given(value)


def _is_stored_as_given(value: Any) -> None:
    root = running(inputs=codec.encode({"value": value}, {"value"}))
    run = step(root, result=codec.encode(value), arguments=codec.encode({"value": value}))
    store.save(root.id, root.lease_token, store.Batch(step_runs=[run]))

    [written] = store.step_runs([root.id])
    assert same(codec.decode(written.result), value)
    assert same(codec.decode(written.arguments), {"value": value})
    assert same(codec.decode(fresh(root).inputs), {"value": value})
    json.dumps(codec.display(written.result), allow_nan=False)
