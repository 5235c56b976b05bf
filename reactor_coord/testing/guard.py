"""Nothing we start outlives us: a process group dies, and its directory goes, when this process does, however it ends.

A guard is a shell that waits for the end of a pipe which only this process holds open. It works where `atexit` does not
(this process was killed), on every Unix, and from any thread, which the kernel's parent-death signal does not. Servers
and workers use it; it knows nothing of either.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_SCRIPT = """
read -r _
[ "$1" = 0 ] || kill -s KILL -- "-$1" 2>/dev/null
[ -z "$2" ] || { sleep 0.2; rm -rf -- "$2"; }
"""


class Guard:
    """Kills process group `pid` (0: none) and removes `directory` when this process is gone.

    `release()` it when you have done so yourself.
    """

    def __init__(self, pid: int, directory: Path | None = None) -> None:
        self._owner = os.getpid()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "guard", str(pid), str(directory or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """Stand down without killing anything. Call it after the guarded process has been reaped: its pid may be reused."""
        if os.getpid() != self._owner:
            return  # a fork of the owner: the guard is not its child
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        if self._shell.stdin is not None:
            with contextlib.suppress(OSError):
                self._shell.stdin.close()
