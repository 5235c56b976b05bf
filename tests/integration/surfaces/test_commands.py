"""The commands: what they print, with which exit code, and that every refusal names the thing and the remedy."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.utils import timezone

from reactor_coord.coordination import inspect
from reactor_coord.management import console
from reactor_coord.models import Execution
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.factories import ExecutionFactory

from .conftest import Scene

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = "tests.live.reactors.Payment"


def run(*words: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture(params=["rich", "plain"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich and without it."""
    monkeypatch.setattr(console, "HAS_RICH", request.param == "rich")


class TestRunReactor:
    def test_here_with_inputs_as_words(self, recorder: Any) -> None:
        text = run("run_reactor", PAYMENT, "--input", "key=acct:1", "--input", "seconds=0.01")
        assert "completed" in text and "result" in text

    def test_u119_inputs_as_json_from_standard_input_and_out_as_json(
        self, recorder: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", StringIO('{"key": "acct:1"}'))
        document = json.loads(run("run_reactor", PAYMENT, "--inputs", "-", "--json"))
        assert document["summary"]["status"] == "completed" and document["result"]["step"] == "charge"

    def test_a_failure_exits_non_zero_and_names_the_step(self, recorder: Any) -> None:
        out = StringIO()
        with pytest.raises(CommandError, match="failed"):
            call_command("run_reactor", PAYMENT, "--input", "key=k", "--input", "fail_at=notify", stdout=out)
        assert "step notify failed" in out.getvalue() and "rolled back" in out.getvalue()

    def test_contention_here_names_key_and_holder(self, recorder: Any) -> None:
        out = StringIO()
        with hold("acct:1"), pytest.raises(CommandError):
            call_command("run_reactor", PAYMENT, "--input", "key=acct:1", stdout=out)
        assert "acct:1" in out.getvalue() and "testing.hold" in out.getvalue()

    def test_in_the_background_it_answers_with_the_id(self, reactor_dispatches: Dispatches) -> None:
        words = ("run_reactor", PAYMENT, "--input", "key=acct:1", "--background", "--idempotency-key", "k1")
        text, again = run(*words), run(*words)
        row = Execution.objects.get()
        assert str(row.pk) in text and str(row.pk) in again and row.idempotency_key == "k1"
        assert reactor_dispatches.ids == [str(row.pk)]

    def test_waiting_longer_than_it_may_says_where_to_look(self, reactor_dispatches: Dispatches) -> None:
        with pytest.raises(CommandError, match=r"is a worker running\?"):
            run("run_reactor", PAYMENT, "--input", "key=k", "--background", "--wait", "--timeout", "0.3")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("Paymemt",), r"Paymemt.*Did you mean.*Payment"),
            ((PAYMENT, "--input", "key"), r"--input 'key' has no value"),
            ((PAYMENT, "--input", "key=a", "--input", "key=b"), "given twice"),
            ((PAYMENT, "--input", "seconds=soon"), r"(?s)Wrong input for Payment.*seconds.*|key"),
            ((PAYMENT, "--input", "kye=a"), r"(?s)kye.*Did you mean.*key"),
            ((PAYMENT, "--inputs", "{"), "--inputs is not JSON"),
            ((PAYMENT, "--inputs", "[1]"), "must be an object"),
            ((PAYMENT, "--json", '{"key": "a"}'), "unrecognized arguments"),
        ],
    )
    def test_what_is_wrong_is_named(self, words: tuple[str, ...], message: str) -> None:
        with pytest.raises(CommandError, match=message):
            run("run_reactor", *words)


@pytest.mark.parametrize(
    "name",
    ["coordination", "execution", "executions", "prune_executions", "reactors", "run_reactor", "sweep_reactors"],
)
def test_u119_json_is_how_every_command_prints_and_takes_no_value(name: str) -> None:
    parser = load_command_class("reactor_coord", name).create_parser("manage.py", name)
    [option] = [each for each in parser._actions if "--json" in each.option_strings]
    assert option.nargs == 0 and option.default is False


class TestExecutions:
    def test_list_and_one(self, scene: Scene, either_way: None) -> None:
        listed = run("executions")
        assert "Payment" in listed and "parked (contention)" in listed and "acct:1" in listed
        shown = run("executions", str(scene.row.pk))
        for word in ("audit", "charge", "notify", "waiting", "refused", "parked", "acct:1", "1st in line"):
            assert word in shown, word

    def test_filters_and_json(self, scene: Scene) -> None:
        assert len(json.loads(run("executions", "--status", "parked", "--json"))) == 1
        assert json.loads(run("executions", "--status", "failed", "--json")) == []
        assert len(json.loads(run("executions", "--waiting-key", "acct:1", "--json"))) == 1
        assert "No execution matches" in run("executions", "--reactor", "Other")

    def test_what_is_not_there(self, db: None) -> None:
        with pytest.raises(CommandError, match="There is no execution"):
            run("executions", "00000000-0000-7000-8000-000000000000")
        with pytest.raises(CommandError, match="is not an execution's id"):
            run("executions", "nonsense!")

    def test_verbs(self, scene: Scene) -> None:
        name = str(scene.row.pk)
        with pytest.raises(CommandError, match="parked"):
            run("execution", name, "resume")
        assert "accepted" in run("execution", name, "cancel", "--reason", "because")
        drain()
        assert scene.again().status == "cancelled"
        assert "started anew" in run("execution", name, "retry")
        with pytest.raises(CommandError, match="not JSON"):
            run("execution", name, "resume", "--payload", "{")


class TestCoordination:
    def test_shows_holds_lines_and_parks(self, scene: Scene, either_way: None) -> None:
        text = run("coordination")
        for word in ("acct:1", "testing.hold", str(scene.held.fence), "Held (1)", "In line (1)", "Stepped aside (1)"):
            assert word in text, word

    def test_json(self, scene: Scene) -> None:
        document = json.loads(run("coordination", "--json"))
        assert document["holds"][0]["fence"] == scene.held.fence
        assert document["waiters"][0]["place"] == 1 and document["parks"][0]["wait"]["key"] == "acct:1"

    def test_release_asks_first(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("builtins.input", lambda prompt: "no")
        with pytest.raises(CommandError, match="Not done"):
            run("coordination", "--release", "acct:1")
        assert inspect.look("acct:1").hold is not None
        monkeypatch.setattr("builtins.input", lambda prompt: "acct:1")
        assert "Released" in run("coordination", "--release", "acct:1")
        drain()
        assert scene.again().status == "completed"

    def test_release_without_asking_needs_the_fence_that_was_looked_at(self, scene: Scene) -> None:
        with pytest.raises(CommandError, match="--yes needs --fence and --reason"):
            run("coordination", "--release", "acct:1", "--yes")
        with pytest.raises(CommandError, match="Owner changed"):
            run("coordination", "--release", "acct:1", "--yes", "--fence", "1", "--reason", "stuck")
        with pytest.raises(CommandError, match="Nobody holds"):
            run("coordination", "--release", "acct:2")
        words = ("coordination", "--release", "acct:1", "--yes", "--fence", str(scene.held.fence))
        with pytest.raises(CommandError, match="--yes needs --reason"):
            run(*words)
        assert "Released" in run(*words, "--reason", "stuck")

    def test_without_redis_it_says_so_and_exits_non_zero(self, scene: Scene, settings: Any) -> None:
        settings.CACHES = {
            "default": {**settings.CACHES["default"], "LOCATION": "redis://:hunter2@127.0.0.1:1/0"},
        }
        out = StringIO()
        with pytest.raises(CommandError, match="Redis"):
            call_command("coordination", stdout=out)
        assert "REDIS_ALIAS" in out.getvalue() and "hunter2" not in out.getvalue()
        assert str(scene.row.pk)[-8:] in out.getvalue()


class TestReactors:
    def test_lists_each_with_its_steps_and_what_they_coordinate(self, either_way: None) -> None:
        text = run("reactors")
        assert "tests.live.reactors.Payment" in text and "[lock {key}]" in text
        assert any(each["name"] == PAYMENT for each in json.loads(run("reactors", "--json")))
        assert "Guarded" in run("reactors", "tests.live.reactors.Guarded")

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("text", ("audit", "after audit", "lock {key}")),
            ("mermaid", ("flowchart LR", "s0 --> s1", "#123;key#125;")),
            ("dot", ('digraph "Payment"', '"audit" -> "charge";')),
        ],
    )
    def test_graph(self, kind: str, words: tuple[str, ...]) -> None:
        text = run("reactor_graph", PAYMENT, "--format", kind)
        for word in words:
            assert word in text

    def test_an_unknown_one(self) -> None:
        with pytest.raises(CommandError, match="Paymemt"):
            run("reactor_graph", "tests.live.reactors.Paymemt")


class TestHousekeeping:
    def test_the_sweep_sends_what_is_due(self, reactor_dispatches: Dispatches) -> None:
        row = ExecutionFactory.create(ready=True, resume_at=timezone.now())
        report = json.loads(run("sweep_reactors", "--json"))
        assert report["sent"] == 1 and reactor_dispatches.ids == [str(row.pk)]
        assert "sent 0" in run("sweep_reactors")

    def test_prune_deletes_what_ended_long_ago_and_nothing_else(self, db: None) -> None:
        long_ago = timezone.now() - timedelta(days=40)
        for _ in range(5):
            ExecutionFactory.create(finished_at=long_ago)
        recent, parked = ExecutionFactory.create(), ExecutionFactory.create(parked=True)
        assert "5 executions" in run("prune_executions", "--dry-run")
        assert Execution.objects.count() == 7
        assert json.loads(run("prune_executions", "--batch", "2", "--json"))["executions"] == 5
        assert set(Execution.objects.values_list("pk", flat=True)) == {recent.pk, parked.pk}
        with pytest.raises(CommandError, match="negative"):
            run("prune_executions", "--days", "-1")
