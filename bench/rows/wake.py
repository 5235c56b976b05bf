"""From a release to the body that waited for it, in a real worker; beside what Celery needs for any message."""

from __future__ import annotations

import time
from typing import cast

import redis

from bench import tasks
from bench.reactors import Locked
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import ms, quantile
from reactor_coord import testing
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing.worker import LiveWorker

AIM_MS = 10.0
PATIENCE = 15.0


def measure(stage: Stage) -> Row:
    """Take turns: one park, release and wake; one bare task."""
    times = stage.either(200, 30)
    client = redis.Redis.from_url(stage.valkey.url)
    wakes: list[float] = []
    dispatches: list[float] = []
    with stage.workers(2) as worker:
        for number in range(-10, times):
            woken, dispatched = _wake(f"bench:wake:{number}", worker), _dispatch(client)
            if number >= 0:
                wakes.append(woken)
                dispatches.append(dispatched)
    p50, p99 = quantile(wakes, 0.5), quantile(wakes, 0.99)
    bare50, bare99 = quantile(dispatches, 0.5), quantile(dispatches, 0.99)
    return Row(
        name="wake",
        title="release to the next body, for an execution that is parked",
        conditions="a worker with 2 processes, executions in a durable PostgreSQL, broker and locks in one Valkey",
        figures=(
            Figure("Celery's bare dispatch, publish to body, p50", ms(bare50), 1.0),
            Figure("Celery's bare dispatch, publish to body, p99", ms(bare99), bare99 / bare50),
            Figure("this package, release to body, p50", ms(p50), p50 / bare50, True),
            Figure("this package, release to body, p99", ms(p99), p99 / bare50, True),
        ),
        floor="the bare dispatch",
        checked=f"{times} executions were parked, each with nobody else to wake it, and each completed under its lock",
        aim=f"p50 under {AIM_MS:.0f} ms",
        is_met=p50 * 1000 < AIM_MS,
    )


def _wake(key: str, worker: LiveWorker) -> float:
    with testing.hold(key, ttl=60) as held:
        handle = Locked.enqueue(key=key)
        wait_parked(handle, worker)
        time.sleep(0.02)  # the worker that parked it is idle again
        released = time.monotonic()
        held.release()
    outcome = handle.wait(PATIENCE)
    check(outcome.succeeded, f"an execution that was woken ended {outcome.status}: {outcome.failure}")
    value = cast("dict[str, float]", outcome.value)
    check(value["fence"] > held.fence, "the woken body ran without a later fence")
    return value["began"] - released


def wait_parked(handle: ExecutionHandle, worker: LiveWorker) -> None:
    """Wait until the execution has parked."""
    deadline = time.monotonic() + PATIENCE
    while handle.status != "parked":
        check(time.monotonic() < deadline, f"an execution did not park; the worker says:\n{worker.log()[-2000:]}")
        time.sleep(0.005)


def _dispatch(client: redis.Redis) -> float:
    sent = time.monotonic()
    tasks.note_start.delay()
    answer = cast("tuple[bytes, bytes] | None", client.blpop([tasks.STARTS], timeout=PATIENCE))
    check(answer is not None, "a bare Celery task did not run")
    assert answer is not None
    time.sleep(0.02)
    return float(answer[1]) - sent
