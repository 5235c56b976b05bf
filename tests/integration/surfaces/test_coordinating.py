"""What operators see of all five primitives, and do to them: by what was looked at, with a reason, refused if it changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.urls import reverse

from reactor_coord import operations
from reactor_coord.coordination import Requester, Turn, locks, ordered_lines, periods, rate_limits
from reactor_coord.coordination.connection import Connection
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.operations import views
from reactor_coord.testing import drain, hold
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.factories import ExecutionFactory
from tests.support.counting import counted_queries

from .conftest import ClientOf
from .family import Book, Pack, Post, Report

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True, slots=True)
class Family:
    """One execution stopped at each primitive that stops one, one that marked its day, and what named each by then."""

    packer: Execution
    poster: Execution
    reporter: Execution
    first: Execution
    second: Execution
    named: dict[str, dict[str, Any]]
    concerned: dict[str, Execution]
    dispatches: Dispatches


def _started(reactor: Any, key: str) -> Execution:
    handle = reactor.enqueue(key=key)
    drain()
    return Execution.objects.get(pk=handle.id)


@pytest.fixture
def family(transactional_db: None, reactor_dispatches: Dispatches) -> Iterator[Family]:
    """See `Family`."""
    lead = Requester(owner="lead", claim="c", reactor="tests.lead", step="first")
    taken = ordered_lines().enter("book", "lead", lead, poison_timeout=600, ttl=3600)
    with hold("pack", "semaphore", limit=2), hold("pack", "semaphore", limit=2) as held:
        packer = _started(Pack, "pack")
        for _ in range(2):
            _started(Post, "post")
        poster = _started(Post, "post")
        reporter = _started(Report, "report")
        first, second = _started(Book, "book"), _started(Book, "book")
        (waiter,) = views.waiters().rows
        (limit,) = views.limits().rows
        (bucket,) = views.buckets().rows
        (line,) = views.lines().rows
        yield Family(
            packer,
            poster,
            reporter,
            first,
            second,
            named={
                "release": {"key": "pack", "primitive": "semaphore", "fence": held.fence},
                "drop": {"key": "pack", "primitive": "semaphore", "ticket": waiter.ticket},
                "skip": {"key": "book", "position": 2, "epoch": line.epoch},
                "reset": {"key": "book", "epoch": line.epoch},
                "clear": {"key": "report", "bucket": bucket.bucket, "by": bucket.by},
                "forget": {"key": "post", "who": limit.planned[0].who, "at": limit.planned[0].at},
            },
            concerned={
                "drop": packer,
                "skip": first,
                "reset": first,
                "clear": reporter,
                "forget": poster,
            },
            dispatches=reactor_dispatches,
        )
    assert taken is not None


ACTS = ("release", "drop", "skip", "reset", "clear", "forget")
CHANGES: dict[str, dict[str, Any]] = {
    "release": {"fence": 1},
    "drop": {"ticket": 999},
    "skip": {"epoch": 1},
    "reset": {"epoch": 1},
    "clear": {"by": "another"},
    "forget": {"at": 1.5},
}
API_PATHS = {
    "release": "coordination-release",
    "drop": "coordination-drop",
    "skip": "coordination-skip",
    "reset": "coordination-reset",
    "clear": "coordination-clear",
    "forget": "coordination-forget",
}


def _state() -> tuple[Any, ...]:
    """What Redis says, but for what only passes by."""
    line = ordered_lines().view("book")
    return (
        [(row.key, row.fence) for row in views.holds().rows],
        [(row.key, row.ticket) for row in views.waiters().rows],
        (line.epoch, [each.position for each in line.in_flight]),
        views.buckets().rows,
        [row.planned for row in views.limits().rows],
    )


class TestSeen:
    def test_semaphores_locks_and_their_lines(self, family: Family) -> None:
        holds = views.holds().rows
        assert [(row.key, row.slots_used, row.limit) for row in holds] == [("pack", 2, 2)] * 2
        (waiter,) = views.waiters().rows
        assert (waiter.place, waiter.priority, waiter.execution, waiter.kind) == (1, 0, str(family.packer.pk), "parked")
        assert waiter.since is not None and waiter.ticket > 0

    def test_a_slot_without_a_line_says_its_limit_too(self, reactor_dispatches: Dispatches) -> None:
        with hold("alone", "semaphore", limit=3):
            (row,) = views.holds().rows
        assert (row.slots_used, row.limit) == (1, 3)

    def test_windows_against_their_limit_and_planned_slots(self, family: Family) -> None:
        (row,) = views.limits().rows
        (window,) = row.windows
        assert (row.key, window.limit, window.seconds, window.count) == ("post", 2, 3600, 2)
        assert window.ends_at is not None and row.planned_total == 1
        (slot,) = row.planned
        assert (slot.execution, slot.step, slot.due) == (str(family.poster.pk), "letter", window.ends_at)

    def test_a_sliding_window_counts_what_is_inside_it(self, reactor_dispatches: Dispatches) -> None:
        from reactor_coord.coordination import Window

        for token in ("a", "b"):
            windows = [Window(3, 60), Window(100, 3600)]
            rate_limits().charge("slide", token, token, windows, "sliding_window", plans=False)
        (row,) = views.limits().rows
        assert [(each.count, each.limit, each.seconds, each.ends_at) for each in row.windows] == [
            (2, 3, 60, None),
            (2, 100, 3600, None),
        ]

    def test_marked_buckets(self, family: Family) -> None:
        (row,) = views.buckets().rows
        assert (row.key, row.by) == ("report", str(family.reporter.pk)) and row.bucket.startswith("day:")
        assert row.since is not None and row.until is not None and row.until > row.since

    def test_an_ordered_line(self, family: Family) -> None:
        (row,) = views.lines().rows
        assert (row.key, row.next, row.last_completed, row.first_failed, row.waiting) == ("book", 1, 0, 0, 3)
        assert [(each.position, each.state, each.execution) for each in row.in_flight] == [
            (1, "running", ""),
            (2, "waiting", str(family.first.pk)),
            (3, "waiting", str(family.second.pk)),
        ]
        assert row.in_flight[0].passed_over is not None

    def test_the_page_the_endpoints_and_the_command_show_all_of_it(self, family: Family, client_of: ClientOf) -> None:
        client = client_of("operator")
        page = client.get(reverse("admin:reactor_coord_coordination")).content.decode()
        for word in (
            "2 of 2",
            "pack",
            "post",
            "report",
            "day:",
            "book",
            "next 1",
            "Skip…",
            "Reset…",
            "Free…",
            "Forget…",
        ):
            assert word in page, word
        assert str(family.first.pk) in page
        for name, key in (("limits", "post"), ("periods", "report"), ("lines", "book"), ("holds", "pack")):
            rows = client.get(reverse(f"reactor_coord_api:coordination-{name}")).json()["results"]
            assert rows and {row["key"] for row in rows} == {key}, name
        out = StringIO()
        call_command("coordination", stdout=out)
        for word in ("Ordered lines (1)", "Rate limits (1)", "Periods (1)", "2 of 2", "book: next 1", "2 of 2 in 1 h"):
            assert word in out.getvalue(), word
        out = StringIO()
        call_command("coordination", "--json", stdout=out)
        assert set(json.loads(out.getvalue())) == {"notice", "holds", "waiters", "lines", "limits", "periods", "parks"}

    def test_who_may_only_look_is_offered_nothing(self, family: Family, client_of: ClientOf) -> None:
        page = client_of("viewer").get(reverse("admin:reactor_coord_coordination")).content.decode()
        for word in ("Release…", "Drop…", "Skip…", "Reset…", "Free…", "Forget…"):
            assert word not in page

    def test_reading_costs_the_same_round_trips_however_much_there_is(
        self, reactor_dispatches: Dispatches, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[int] = []
        plain = Connection.commands

        def counted(self: Connection, *commands: Any) -> list[Any]:
            calls.append(len(commands))
            return plain(self, *commands)

        monkeypatch.setattr(Connection, "commands", counted)

        def trips(number: int) -> int:
            for each in range(number):
                _fill(f"{number}-{each}")
            calls.clear()
            for read in (views.holds, views.waiters, views.limits, views.buckets, views.lines):
                assert len(read().rows) >= number
            return len(calls)

        assert trips(20) == trips(2)


def _fill(name: str) -> None:
    """One hold with a waiter, one limit with a plan, one mark and one line."""
    from reactor_coord.coordination import Window

    for owner in ("a", "b"):
        locks().take([name], Requester(owner=f"{owner}{name}", claim="c", wake="w"), ttl=60)
        rate_limits().charge(name, f"{owner}|{owner}/s", owner, [Window(1, 60)], "fixed_window", plans=True)
        requester = Requester(owner=owner, claim="c", wake="w")
        ordered_lines().enter(name, owner, requester, poison_timeout=60, ttl=60)
    bucket, _ = periods().look(name, "day", "UTC")
    periods().mark(name, bucket, "a")


class TestActs:
    @pytest.mark.parametrize("name", ACTS)
    def test_in_the_admin(self, name: str, family: Family, client_of: ClientOf) -> None:
        client, named = client_of("operator"), family.named[name]
        url = reverse(f"admin:reactor_coord_{name}")
        before = _state()
        page = client.get(url, named).content.decode()
        assert named["key"] in page and "Reason" in page
        if name in family.concerned and name != "reset":
            assert str(family.concerned[name].pk)[-8:] in page
        assert client.post(url, {**named, "reason": " "}).status_code == 200
        assert _state() == before
        answer = client.post(url, {**named, "reason": "it is stuck"}, follow=True)
        assert answer.redirect_chain and "Nothing" not in answer.content.decode().partition("content-main")[0]
        assert _state() != before
        _assert_told(name, family, "operator")
        entry = LogEntry.objects.get()
        assert "it is stuck" in entry.change_message
        concerned = family.concerned.get(name)
        if name != "reset":
            assert entry.object_id == (str(concerned.pk) if concerned else None)

    @pytest.mark.parametrize("name", ACTS)
    def test_in_the_admin_refused_if_it_changed(self, name: str, family: Family, client_of: ClientOf) -> None:
        client, named = client_of("operator"), {**family.named[name], **CHANGES[name]}
        url = reverse(f"admin:reactor_coord_{name}")
        before = _state()
        for answer in (
            client.get(url, named, follow=True),
            client.post(url, {**named, "reason": "it is stuck"}, follow=True),
        ):
            assert answer.redirect_chain and (
                "Nothing" in answer.content.decode() or "Nobody" in answer.content.decode()
            )
        assert client.get(url, follow=True).redirect_chain
        assert _state() == before and not LogEntry.objects.exists()
        assert not TraceEvent.objects.filter(kind="operator").exists()

    @pytest.mark.parametrize("name", ACTS)
    def test_over_http(self, name: str, family: Family, client_of: ClientOf, post_json: Any) -> None:
        client, named = client_of("operator"), family.named[name]
        url = reverse(f"reactor_coord_api:{API_PATHS[name]}")
        before = _state()
        assert set(post_json(client, url, named).json()) == {"reason"}
        changed = post_json(client, url, {**named, **CHANGES[name], "reason": "it is stuck"})
        assert changed.status_code == 409 and "Nothing was" in changed.json()["detail"]
        assert _state() == before
        answer = post_json(client, url, {**named, "reason": "it is stuck"})
        assert answer.status_code == 200 and answer.json()["key"] == named["key"]
        assert _state() != before
        _assert_told(name, family, "operator")

    @pytest.mark.parametrize("name", ACTS)
    def test_on_the_command_line(self, name: str, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
        named = family.named[name]
        options = {key: value for key, value in named.items() if key != "key"}
        before = _state()
        monkeypatch.setattr("builtins.input", lambda prompt: "no")
        with pytest.raises(CommandError, match="Not done"):
            _coordination(name, named["key"], **options)
        with pytest.raises(CommandError, match="--yes needs"):
            _coordination(name, named["key"], yes=True)
        with pytest.raises(CommandError):
            _coordination(name, named["key"], yes=True, reason="it is stuck", **{**options, **CHANGES[name]})
        assert _state() == before
        text = _coordination(name, named["key"], yes=True, reason="it is stuck", **options)
        assert named["key"] in text and _state() != before
        _assert_told(name, family, "manage.py coordination")

    def test_the_command_asks_then_wants_a_reason(self, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = iter(["book", "", "book", "it is stuck"])
        monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
        with pytest.raises(CommandError, match="needs a reason"):
            _coordination("reset", "book")
        assert "begins afresh" in _coordination("reset", "book")
        _assert_told("reset", family, "manage.py coordination")

    def test_of_several_that_could_be_meant_none_is_touched(self, family: Family) -> None:
        before = _state()
        with pytest.raises(
            CommandError, match=r"(?s)could be meant.*--position.*position 1 of book.*position 3 of book"
        ):
            _coordination("skip", "book")
        with pytest.raises(CommandError, match="lists what there is"):
            _coordination("skip", "nothing")
        assert _state() == before

    def test_redis_away_is_no_reason_to_guess(
        self, family: Family, client_of: ClientOf, post_json: Any, settings: Any
    ) -> None:
        location = "redis://operator:hunter2@127.0.0.1:1/0"
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": location}}
        client = client_of("operator")
        for name in ACTS:
            asked = {**family.named[name], "reason": "it is stuck"}
            page = client.post(reverse(f"admin:reactor_coord_{name}"), asked, follow=True).content.decode()
            assert "Redis" in page and "hunter2" not in page
            answer = post_json(client, reverse(f"reactor_coord_api:{API_PATHS[name]}"), asked)
            assert answer.status_code == 503 and "hunter2" not in answer.content.decode()
            options = {key: value for key, value in asked.items() if key not in {"key", "reason"}}
            with pytest.raises(CommandError, match="Redis"):
                _coordination(name, asked["key"], yes=True, reason="x", **options)
        assert not LogEntry.objects.exists()


class TestEffects:
    def test_a_released_slot_goes_to_who_waits(self, family: Family) -> None:
        family.dispatches.clear()
        assert operations.release_key(**family.named["release"], reason="stuck", actor="me")
        assert family.dispatches.ids == [str(family.packer.pk)]
        drain()
        assert Execution.objects.get(pk=family.packer.pk).status == "completed"

    def test_a_dropped_waiter_is_not_ended_and_joins_anew(self, family: Family) -> None:
        assert operations.drop_waiter(**family.named["drop"], reason="stuck", actor="me")
        assert not operations.drop_waiter(**family.named["drop"], reason="stuck", actor="me")
        assert Execution.objects.get(pk=family.packer.pk).status == "parked"
        assert views.waiters().rows == ()
        _look(family.packer)
        (again,) = views.waiters().rows
        assert again.execution == str(family.packer.pk) and again.ticket != family.named["drop"]["ticket"]

    def test_a_skipped_head_lets_the_next_one_pass(self, family: Family) -> None:
        family.dispatches.clear()
        epoch = family.named["skip"]["epoch"]
        assert operations.skip_position("book", position=1, epoch=epoch, reason="dead", actor="me")
        assert family.dispatches.ids == [str(family.first.pk)]
        drain()
        assert [Execution.objects.get(pk=each.pk).status for each in (family.first, family.second)] == ["completed"] * 2

    def test_a_reset_line_keeps_the_order_of_those_who_wait(self, family: Family) -> None:
        family.dispatches.clear()
        assert operations.reset_line(**family.named["reset"], reason="stuck", actor="me")
        assert family.dispatches.ids == [str(family.first.pk), str(family.second.pk)]
        drain()
        assert [Execution.objects.get(pk=each.pk).status for each in (family.first, family.second)] == ["completed"] * 2

    def test_u117_a_drained_line_that_stays_failed_is_shown_and_can_be_reset(
        self, reactor_dispatches: Dispatches, client_of: ClientOf, post_json: Any
    ) -> None:
        failed: Execution = ExecutionFactory.create(status="failed")
        who = Requester(str(failed.pk), "c", execution=str(failed.pk))
        turn = ordered_lines().enter("chain", str(failed.pk), who, poison_timeout=60, ttl=60)
        assert isinstance(turn, Turn)
        ordered_lines().complete(turn.taken, failed=True, chain_ttl=3600)
        client = client_of("operator")
        page = client.get(reverse("admin:reactor_coord_coordination")).content.decode()
        for word in ("chain", "failed first: 1", "those who come skip; healed", str(failed.pk)):
            assert word in page, word
        (row,) = client.get(reverse("reactor_coord_api:coordination-lines")).json()["results"]
        assert (row["failed_by"], row["in_flight"]) == (str(failed.pk), [])
        assert row["failed_until"] is not None
        out = StringIO()
        call_command("coordination", stdout=out)
        assert "healed in" in out.getvalue()
        named = {"key": "chain", "epoch": row["epoch"]}
        act = client.get(reverse("admin:reactor_coord_reset"), named).content.decode()
        assert "Failed until" in act
        assert str(failed.pk)[-8:] in act
        url = reverse("reactor_coord_api:coordination-reset")
        assert post_json(client, url, {**named, "reason": "by hand"}).status_code == 200
        assert views.lines().rows == ()
        (told,) = TraceEvent.objects.filter(kind="operator")
        assert told.execution_id == failed.pk

    def test_a_freed_bucket_is_run_in_again(self, family: Family) -> None:
        assert _written(_started(Report, "report")) == "skipped"
        assert operations.clear_period(**family.named["clear"], reason="again", actor="me")
        assert _written(_started(Report, "report")) == "succeeded"

    def test_a_forgotten_slot_is_anothers(self, family: Family) -> None:
        before = family.named["forget"]["at"]
        assert operations.forget_slot(**family.named["forget"], reason="gone", actor="me")
        assert not operations.forget_slot(**family.named["forget"], reason="gone", actor="me")
        following = _started(Post, "post")
        (row,) = views.limits().rows
        assert [(slot.execution, slot.at) for slot in row.planned] == [(str(following.pk), before)]

    def test_acts_on_what_is_no_primitive_with_holders_do_nothing(self, family: Family) -> None:
        before = _state()
        assert not operations.release_key("book", fence=1, primitive="ordered_lock")
        assert not operations.drop_waiter("post", ticket=1, primitive="rate_limit")
        assert _state() == before


def test_an_act_costs_few_queries(family: Family, client_of: ClientOf) -> None:
    client = client_of("operator")
    url = reverse("admin:reactor_coord_coordination")
    client.get(url)
    with counted_queries() as queries:
        client.get(url)
    assert len(queries) <= 6


def _written(row: Execution) -> str:
    return str(row.step_runs.get(step="write").status)


def _look(row: Execution) -> None:
    """As the sweep would, at the time it was due."""
    from reactor_coord import runtime

    deliver: Callable[..., None] = runtime.deliver
    deliver(str(row.pk), "test")


def _coordination(act: str, key: str, **options: Any) -> str:
    out = StringIO()
    call_command("coordination", **{act: key}, **options, stdout=out)
    return out.getvalue()


def _assert_told(name: str, family: Family, actor: str) -> None:
    """One trace row on the execution concerned; of a reset one on each; a hold outside any execution has none."""
    rows = TraceEvent.objects.filter(kind="operator")
    wanted = {"reset": {family.first.pk, family.second.pk}, "release": set()}
    assert {row.execution_id for row in rows} == wanted.get(name) or {row.execution_id for row in rows} == {
        family.concerned[name].pk
    }
    for row in rows:
        assert (row.data["verb"], row.data["reason"], row.data["actor"]) == (name, "it is stuck", actor)
        assert row.key == family.named[name]["key"] and row.primitive
