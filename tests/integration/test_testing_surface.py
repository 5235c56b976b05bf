"""What users test their reactors with does what it says, on the real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import redis
from django.conf import settings
from django.db import connection

from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.servers import PostgresServer, ServerError, ValkeyServer, database_settings


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
            any(_is_alive(int(pid)) for pid in (first, second)) or Path(second_directory).exists()
        ):
            time.sleep(0.05)
        assert not _is_alive(int(first))
        assert not _is_alive(int(second))
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
    def test_a_live_worker_runs_on_the_test_database_and_leaves_nothing(self, live_worker, recorder) -> None:
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
        assert not any(_is_alive(pid) for pid in pids)

    @pytest.mark.django_db(transaction=True)
    def test_a_killed_child_ends_the_body_it_was_in(self, live_worker, recorder) -> None:
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
    def proxy(self, recorder: Recorder):  # noqa: ANN201
        with Proxy(recorder.url) as proxy:
            yield proxy

    @pytest.fixture
    def client(self, proxy: Proxy):  # noqa: ANN201
        client = redis.Redis.from_url(proxy.url, socket_timeout=2, retry=None)
        yield client
        client.close()

    def test_a_swallowed_reply_was_obeyed_by_the_server(self, proxy, client, recorder, reactor_prefix) -> None:
        client.ping()
        proxy.swallow_replies(1, match=b"incr")
        with pytest.raises(redis.ConnectionError):
            client.incr(f"{reactor_prefix}:n")
        assert proxy.swallowed == 1
        assert client.incr(f"{reactor_prefix}:n") == 2

    def test_delay_cut_refuse_and_pause(self, proxy, client) -> None:
        client.ping()
        proxy.delay_down = 0.2
        began = time.monotonic()
        client.ping()
        assert time.monotonic() - began >= 0.2
        proxy.delay_down = 0
        with client.pubsub() as listening:
            listening.subscribe("channel")
            listening.get_message(timeout=1)
            proxy.cut()
            with pytest.raises(redis.ConnectionError):
                listening.connection.read_response()
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
