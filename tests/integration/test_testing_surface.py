"""What users test their reactors with does what it says, on the real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection

from reactor_coord import testing
from reactor_coord.errors import InputValidationError
from reactor_coord.results import Decided, Skipped
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.processes import is_alive
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.servers import PostgresServer, ServerError, ValkeyServer, database_settings
from tests.live import reactors
from tests.support.patience import patience


class TestServers:
    def test_valkey_keeps_its_data_over_a_restart_only_when_asked(self) -> None:
        with ValkeyServer() as server:
            client = redis.Redis.from_url(server.url)
            client.set("kept", 1)
            port = server.port
            server.restart(keep_data=True)
            assert client.get("kept") == b"1"
            server.restart()
            assert client.get("kept") is None
            assert server.port == port
            client.close()

    def test_a_paused_valkey_does_not_answer_until_it_is_resumed(self) -> None:
        with ValkeyServer() as server:
            client = redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None)
            client.ping()
            server.pause()
            with pytest.raises(redis.TimeoutError):
                client.ping()
            server.resume()
            assert client.ping()
            client.close()

    def test_what_a_server_says_when_it_cannot_start_is_in_the_error(self) -> None:
        with pytest.raises(ServerError, match=r"(?i)bad directive|invalid|fatal"):
            ValkeyServer("--no-such-option", "1").start()

    def test_nothing_is_left_when_the_process_that_started_them_is_killed(self) -> None:
        program = (
            "import sys, time; from reactor_coord.testing.servers import *;"
            "a = ValkeyServer().start(); b = PostgresServer().start();"
            "print(a.pid, a.directory, b.pid, b.directory, flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
            assert starter.stdout is not None
            first, first_directory, second, second_directory = starter.stdout.readline().split()
            starter.kill()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and (
            any(is_alive(int(pid)) for pid in (first, second)) or Path(second_directory).exists()
        ):
            time.sleep(0.05)
        assert not is_alive(int(first))
        assert not is_alive(int(second))
        assert not Path(first_directory).exists()
        assert not Path(second_directory).exists()

    def test_postgres_serves_and_comes_back_on_the_same_port(self) -> None:
        import psycopg

        with PostgresServer() as server:
            with psycopg.connect(server.url, autocommit=True) as client:
                client.execute("create table kept (n int)")
            server.restart()
            with psycopg.connect(server.url) as client:
                assert client.execute("select count(*) from kept").fetchone() == (0,)
        assert database_settings(server.database_url("x"))["NAME"] == "x"


class TestBench:
    def test_each_test_has_a_prefix_of_its_own(self, reactor_prefix: str) -> None:
        assert settings.REACTOR_COORD["KEY_PREFIX"] == reactor_prefix

    @pytest.mark.django_db(transaction=True)
    def test_a_thread_sees_the_database_of_the_test(self) -> None:
        from django.contrib.auth.models import User

        User.objects.create(username="seen")
        seen: list[bool] = []

        def look() -> None:
            seen.append(User.objects.filter(username="seen").exists())
            connection.close()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [True]

    @pytest.mark.django_db(transaction=True)
    def test_a_live_worker_runs_on_the_test_database_and_leaves_nothing(
        self, live_worker: StartWorker, recorder: Recorder
    ) -> None:
        from django.contrib.auth.models import User

        from tests.live.tasks import create_user, record_sleep

        worker = live_worker(concurrency=2)
        assert len(worker.children()) == 2
        create_user.delay("from-the-worker")
        record_sleep.delay("a", 0.3)
        record_sleep.delay("a", 0.3)
        recorder.wait_for("a", 2, left=True)
        assert User.objects.filter(username="from-the-worker").exists()
        assert recorder.max_concurrency("a") == 2
        pids = [worker.pid, *worker.children()]
        worker.kill()
        assert not any(is_alive(pid) for pid in pids)

    @pytest.mark.django_db(transaction=True)
    def test_a_killed_child_ends_the_body_it_was_in(self, live_worker: StartWorker, recorder: Recorder) -> None:
        from tests.live.tasks import record_sleep

        worker = live_worker(concurrency=1)
        record_sleep.delay("long", 30)
        (body,) = recorder.wait_for("long")
        assert body.is_open
        worker.kill_child(body.pid)
        killed = recorder.intervals("long")[0]
        assert killed.was_killed
        assert not killed.is_open


class TestRecorder:
    def test_overlap_is_judged_by_the_servers_clock(self, recorder: Recorder) -> None:
        def body(label: str, seconds: float) -> None:
            with recorder.recording(label, n=1):
                time.sleep(seconds)

        threads = [threading.Thread(target=body, args=("a", 0.2)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        body("b", 0)
        recorder.mark("done")
        assert recorder.sequence() == ["a", "a", "b", "done"]
        assert len(recorder.overlaps("a")) == 1
        assert recorder.overlaps("a", "b") == []
        assert recorder.max_concurrency("a") == 2
        assert recorder.intervals("a")[0].pid == os.getpid()
        assert abs(recorder.now() - recorder.entries()[-1].at) < 5

    def test_waiting_in_vain_shows_what_was_recorded(self, recorder: Recorder) -> None:
        recorder.mark("only this")
        with pytest.raises(AssertionError, match="only this"):
            recorder.wait_for("something else", timeout=0.05)


class TestProxy:
    @pytest.fixture
    def proxy(self, recorder: Recorder) -> Iterator[Proxy]:
        with Proxy(recorder.url) as proxy:
            yield proxy

    @pytest.fixture
    def client(self, proxy: Proxy) -> Iterator[redis.Redis]:
        client = redis.Redis.from_url(proxy.url, socket_timeout=2, retry=None)
        yield client
        client.close()

    def test_a_swallowed_reply_was_obeyed_by_the_server(
        self, proxy: Proxy, client: redis.Redis, reactor_prefix: str
    ) -> None:
        client.ping()
        proxy.swallow_replies(1, match=b"incr")
        with pytest.raises(redis.ConnectionError):
            client.incr(f"{reactor_prefix}:n")
        assert proxy.swallowed == 1
        assert client.incr(f"{reactor_prefix}:n") == 2

    def test_delay_cut_refuse_and_pause(self, proxy: Proxy, client: redis.Redis) -> None:
        client.ping()
        proxy.delay_down = 0.2
        began = time.monotonic()
        client.ping()
        assert time.monotonic() - began >= 0.2
        proxy.delay_down = 0
        threading.Timer(0.1, proxy.cut).start()
        with pytest.raises(redis.ConnectionError):
            client.blpop(["nothing"], timeout=1)
        assert client.ping()
        proxy.refuse()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        proxy.refuse(False)
        assert client.ping()
        proxy.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        proxy.resume()
        assert client.ping()


@pytest.mark.django_db(transaction=True)
class TestSurface:
    """`from reactor_coord import testing`, as a user's own tests have it."""

    def test_a_held_key_contends_and_the_assertions_say_so(self, recorder: Recorder) -> None:
        with testing.hold("acct:1") as held:
            testing.assert_locked("acct:1")
            outcome = reactors.Payment.run(key="acct:1", name="x")
        assert outcome.failed
        assert held.fence > 0
        testing.assert_contended(outcome, "charge", key="acct:1")
        testing.assert_ran(outcome, "audit")
        testing.assert_rolled_back(outcome, "audit")
        testing.assert_free("acct:1")
        assert recorder.sequence() == ["run audit", "undo audit"]
        with pytest.raises(AssertionError, match="refused were"):
            testing.assert_contended(outcome, "notify")
        with pytest.raises(AssertionError, match="ran, in order"):
            testing.assert_ran(outcome, "charge")

    def test_a_lock_is_by_the_tree_that_holds_it(self, recorder: Recorder) -> None:
        outcome = reactors.Payment.run(key="acct:1")
        with testing.hold("acct:1"), pytest.raises(AssertionError, match=r"it is held by testing-\w+ \(testing\.hold"):
            testing.assert_locked("acct:1", by=outcome)
        with testing.hold("acct:1"), pytest.raises(AssertionError, match="to be free"):
            testing.assert_free("acct:1")
        with pytest.raises(AssertionError, match="it is free"):
            testing.assert_locked("acct:1")

    def test_holding_what_is_held_names_the_holder(self) -> None:
        with testing.hold("acct:1"), pytest.raises(AssertionError, match=r"acct:1.*testing\.hold"):
            with testing.hold("acct:1"):
                pass

    def test_what_ran_and_in_which_order(self) -> None:
        outcome = reactors.Ordering.run(key="acct:1")
        assert outcome.succeeded
        testing.assert_ran(outcome, "a", "payment.audit", "charge", "notify", "z")
        testing.assert_ran(outcome, "notify", after="payment.charge")
        with pytest.raises(AssertionError, match="expected z then a"):
            testing.assert_ran(outcome, "z", "a")

    def test_draining_runs_what_was_enqueued_and_what_a_release_woke(
        self, reactor_dispatches: Dispatches, recorder: Recorder
    ) -> None:
        with testing.hold("acct:1"):
            handle = reactors.Payment.enqueue(key="acct:1", name="x")
            assert reactor_dispatches.ids == [str(handle.id)]
            (row,) = testing.drain()
            assert row.status == "parked"
            testing.assert_contended(handle, "charge", key="acct:1")
        assert str(handle.id) in reactor_dispatches.ids
        (row,) = testing.drain()
        assert row.status == "completed"
        assert recorder.count("run charge") == 1
        assert testing.drain() == []

    def test_draining_waits_for_a_retry_as_long_as_it_is_told(
        self, reactor_dispatches: Dispatches, recorder: Recorder
    ) -> None:
        reactors.Retried.enqueue(key="acct:1", fail_at="charge", fails=1)
        (row,) = testing.drain()
        assert row.status == "parked"
        (row,) = testing.drain(timeout=5)
        assert row.status == "completed"
        assert recorder.count("run charge") == 2

    def test_a_bare_step_runs_unprotected(self, recorder: Recorder) -> None:
        with testing.hold("acct:1"):
            charge = testing.bare(reactors.LockedWork, key="acct:1", seconds="0")
            assert charge.run()["step"] == "LockedWork"
        with pytest.raises(InputValidationError):
            testing.bare(reactors.LockedWork, key="acct:1", seconds="soon")
        charge.context.progress(1, 2)
        with pytest.raises(Decided) as decided:
            charge.context.skip(reason="enough")
        assert decided.value.result == Skipped(reason="enough")

    def test_factories_make_rows(self) -> None:
        event = testing.TraceEventFactory.create()
        assert event.root_id == event.execution.pk
        parked = testing.ExecutionFactory.create(parked=True)
        assert parked.status == "parked"
        assert testing.StepRunFactory.create(execution=parked).execution == parked
        for trait in ("ready", "running", "failed"):
            assert testing.ExecutionFactory.create(**{trait: True}).status == trait

    def test_a_fault_point_acts_as_often_as_it_is_told(
        self, fault_points: Callable[[Mapping[str, Mapping[str, Any]]], None], recorder: Recorder
    ) -> None:
        fault_points({"body.before": {"action": "raise", "message": "told to", "skip": 1}})
        outcome = reactors.Chain.run()
        assert outcome.failure is not None
        assert (outcome.failure.error_type, outcome.failure.message) == ("RuntimeError", "told to")
        assert recorder.sequence()[0] == "run c1"
        assert reactors.Chain.run().succeeded


@pytest.mark.django_db(transaction=True)
class TestLive:
    def test_two_executions_contend_in_a_worker(self, live_worker: StartWorker, recorder: Recorder) -> None:
        live_worker(concurrency=2)
        handles = [reactors.Payment.enqueue(key="acct:1", name=name, seconds=0.3) for name in "ab"]
        assert all(handle.wait(patience(15)).succeeded for handle in handles)
        assert recorder.max_concurrency("run charge") == 1
        assert recorder.count("run charge") == 2

    def test_a_fault_kills_a_child_and_its_execution_is_taken_up_again(
        self, live_worker: StartWorker, recorder: Recorder
    ) -> None:
        worker = live_worker(
            concurrency=2,
            settings={"REACTOR_COORD": {"LEASE_TTL": 2, "SWEEP_INTERVAL": 0.5}},
            faults={"checkpoint.before": {"action": "kill", "skip": 2}},
        )
        children = worker.children()
        handle = reactors.Chain.enqueue(name="x")
        assert handle.wait(patience(20)).succeeded
        assert not set(children) <= set(worker.children())
        assert recorder.sequence() == ["run c1", "run c2", "run c3", "run c3", "run c4", "run c5", "run c6"]

    @pytest.mark.parametrize("turn", [1, 2])
    def test_a_module_can_share_one_worker(
        self, turn: int, shared_worker: testing.LiveWorker, recorder: Recorder, reactor_prefix: str
    ) -> None:
        assert shared_worker.prefix == reactor_prefix
        assert reactors.Single.enqueue(key=f"acct:{turn}", name=f"turn {turn}").wait(patience(15)).succeeded
        assert recorder.sequence(notes="name") == [f"run charge[turn {turn}]"]
