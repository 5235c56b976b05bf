"""Finds a Redis 7 for `make matrix`, or says how to get one: `python -m tests.support.redis_server [PATH]` prints where it is.

Debian's package is what most who run Redis have. It is installed where that is possible without asking anybody (as root, by
apt); its own service is left as the package starts it, for the tests start private servers of the binary.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

PACKAGE = "redis-server"
OLDEST = 7


def main(arguments: list[str]) -> int:
    """Print the path, or say on standard error what is missing."""
    binary = arguments[0] if arguments else _found() or _installed()
    if binary is None:
        sys.stderr.write(
            f"No Redis {OLDEST} or newer on PATH. Install one (Debian, Ubuntu: sudo apt install {PACKAGE}), say where it is "
            f"(make matrix REDIS_SERVER=/path/to/redis-server), or give a server (make matrix REDIS_URL=redis://...).\n"
        )
        return 1
    if _version(binary) < OLDEST:
        sys.stderr.write(f"{binary} is older than Redis {OLDEST}, or no Redis.\n")
        return 1
    sys.stdout.write(f"{binary}\n")
    return 0


def _found() -> str | None:
    binary = shutil.which(PACKAGE)
    return binary if binary and _version(binary) >= OLDEST else None


def _installed() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", PACKAGE]):
        if subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode:
            return None
    return _found()


def _version(binary: str) -> int:
    """The major version; 0 for what does not say that it is a Redis (a Valkey by that name, for one)."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    found = re.search(r"^Redis server v=(\d+)", said)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
