"""Requesters, waiting on conditions, and forked children for the tests of the primitives."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

from reactor_coord.coordination import Refused, Requester, Taken


def who(owner: str, claim: str = "", *, blocks: bool = False, **more: Any) -> Requester:
    """An execution that is woken by its owner's name, or a process that blocks."""
    return Requester(owner, claim or f"claim of {owner}", wake="" if blocks else owner, execution=owner, **more)


def taken(answer: Taken | Refused) -> Taken:
    """It must have been taken."""
    assert isinstance(answer, Taken), answer
    return answer


def refused(answer: Taken | Refused) -> Refused:
    """It must have been refused."""
    assert isinstance(answer, Refused), answer
    return answer


def eventually(condition: Callable[[], Any], within: float = 5.0) -> float:
    """Wait until it is true; answers after how many seconds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < within, "it never came true"
        time.sleep(0.005)
    return time.monotonic() - begun


def in_child(run: Callable[[], object]) -> int:
    """Fork and run; the child exits with 0, or with 1 when it raised. Answers its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Wait for a child."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(pid: int) -> None:
    """SIGKILL a child and reap it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
