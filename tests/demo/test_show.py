"""`manage.py demo` as somebody types it: it shows nine claims, ends with 0 only if they were so, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from demo_project.demonstration.show import PARTS
from tests.support.bench import bench

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 170


@pytest.fixture(autouse=True)
def _database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the PostgreSQL lane each demo has a database of its own; in the other it brings its SQLite file."""
    server = bench().database_url
    if not server:
        yield
        return
    name = f"demo_{uuid.uuid4().hex[:8]}"
    _on_server(server, f"CREATE DATABASE {name}")
    monkeypatch.setenv("SHOW_DATABASE_URL", urlsplit(server)._replace(path=f"/{name}").geturl())
    yield
    _on_server(server, f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _environment(place: Path, **more: str) -> dict[str, str]:
    """A newcomer's: no server given, nothing of this test session's. `DEMO_DIR` marks all that the demo starts."""
    foreign = ("REDIS_URL", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "DEMO_", "RC_TEST_", "REACTOR_COORD_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    if url := kept.pop("SHOW_DATABASE_URL", ""):
        kept["DATABASE_URL"] = url
    return {**kept, "DEMO_DIR": str(place), **more}


def _manage(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=_environment(place, **environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def _left_running(place: Path, seconds: float = 5.0) -> list[list[str]]:
    """Processes with this demo's mark in their environment, after a moment for the last to go."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for process in psutil.process_iter(["pid"]):
            try:
                if process.environ().get("DEMO_DIR") == str(place) and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(process.cmdline())
            except psutil.Error:
                continue
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _payments(place: Path, rows: int = 12) -> Path:
    path = place / "few.csv"
    lines = [f"R{n},A{n % 3},{n}.50,{'notify' if n % 5 == 4 else ''}" for n in range(1, rows + 1)]
    path.write_text("\n".join(["reference,account,amount,fail_at", *lines]) + "\n")
    return path


@pytest.mark.timeout(240)
def test_the_whole_demo_is_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = _manage(tmp_path, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _left_running(tmp_path) == []
    for part in PARTS:
        assert f"\n{part}  " in done.stdout
    assert "retries spent: none" in done.stdout
    assert "SIGKILL to worker process" in done.stdout
    assert "payments over: 200 of 200" in done.stdout
    assert done.stdout.count("   right\n") == 10
    assert "60 came, none was turned away" in done.stdout
    assert "paused for a person, who approved it" in done.stdout
    assert "60 picks, never more than" in done.stdout
    assert "one report; the second run skipped that step" in done.stdout
    assert "the second halted at the door (period)" in done.stdout
    assert "the book has 1 to 24, no gap, no number twice, in the order of arrival" in done.stdout
    assert 'the second was refused by its guard: "Prevent spamming"' in done.stdout
    assert "5 at once to bob-" in done.stdout
    assert "NOT SO" not in done.stdout

    shown = next(line for line in done.stdout.splitlines() if "manage.py executions" in line)
    execution = shown.split("executions ")[1].split()[0]
    trace = _manage(tmp_path, "executions", execution)
    assert trace.returncode == 0, trace.stdout + trace.stderr
    for word in ("refused", "parked", "woken", "acct:"):
        assert word in trace.stdout


def test_a_ledger_that_is_not_right_is_said_and_the_exit_is_not_zero(tmp_path: Path) -> None:
    few = _payments(tmp_path)
    done = _manage(
        tmp_path, "demo", "--part", "reconciled", "--file", str(few), "--workers", "2", DEMO_SABOTAGE="twice"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT SO" in done.stdout
    assert "once too often" in done.stdout
    assert _left_running(tmp_path) == []


@pytest.mark.parametrize(
    "wish,part,said",
    [
        ("quota", "limited", "turned 11 away"),
        ("report", "once-a-day", "the report of the day was written 2 times"),
        ("mail", "guarded", "has had 2 mails today instead of one"),
    ],
)
def test_what_is_not_so_in_the_second_story_is_said_too(tmp_path: Path, wish: str, part: str, said: str) -> None:
    done = _manage(tmp_path, "demo", "--part", part, DEMO_SABOTAGE=wish)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT SO" in done.stdout
    assert said in done.stdout
    assert _left_running(tmp_path) == []


def test_a_sabotage_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = _manage(tmp_path, "demo", "--part", "serialized", DEMO_SABOTAGE="everything")
    assert done.returncode == 1
    assert "it may be one of missing, twice" in done.stderr


def test_a_bad_file_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    precious = tmp_path / "demo.sqlite3"
    precious.write_text("what an earlier demo left")
    bad = tmp_path / "bad.csv"
    bad.write_text("reference,account,amount\nP1,A,1,50\n")
    done = _manage(tmp_path, "demo", "--file", str(bad))
    assert done.returncode == 1
    assert "line 2" in done.stderr
    assert "a point, not a comma" in done.stderr
    assert "Traceback" not in done.stderr
    assert precious.read_text() == "what an earlier demo left"
    assert _left_running(tmp_path) == []


def test_an_unreachable_redis_is_said_in_a_sentence(tmp_path: Path) -> None:
    done = _manage(tmp_path, "demo", "--part", "serialized", REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert "127.0.0.1:1" in done.stderr + done.stdout
    assert _left_running(tmp_path) == []


@pytest.mark.parametrize("how", ["Ctrl-C", "killed"])
def test_a_demo_that_is_cut_short_leaves_nothing_running(tmp_path: Path, how: str) -> None:
    demo = subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--part", "reconciled"],
        cwd=ROOT,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert demo.stdout is not None
    with demo.stdout as said:
        for line in iter(said.readline, ""):
            if "payments enqueued" in line:
                break
        if how == "Ctrl-C":  # reaches the whole foreground group
            os.killpg(demo.pid, signal.SIGINT)
            assert "nothing is left running" in said.read()
            assert demo.wait(30) == 130
        else:
            demo.kill()
            demo.wait(30)
    assert _left_running(tmp_path, seconds=15) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_until_it_is_ended_and_then_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    log = (tmp_path / "serve.out").open("w+")
    with log:
        serve = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--workers", "1"],
            cwd=ROOT,
            env=_environment(tmp_path),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            address = _address(tmp_path / "serve.out", serve)
            with urllib.request.urlopen(address, timeout=10) as page:
                assert "reactor_coord demo" in page.read().decode()
            with urllib.request.urlopen(f"{address}admin/login/", timeout=10) as page:
                assert page.status == 200
            second = _manage(tmp_path, "serve")
            assert second.returncode == 1
            assert "end it first" in second.stderr
            looked = _manage(tmp_path, "coordination")
            assert looked.returncode == 0, looked.stderr
        finally:
            os.killpg(serve.pid, number) if number == signal.SIGINT else serve.send_signal(number)
            serve.wait(30)
    assert _left_running(tmp_path) == []


def _address(output: Path, serve: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and serve.poll() is None:
        lines = [line for line in output.read_text().splitlines() if line.startswith("http")]
        if lines:
            return lines[0].split()[0]
        time.sleep(0.1)
    raise AssertionError(f"serve did not print its address: {output.read_text()}")
