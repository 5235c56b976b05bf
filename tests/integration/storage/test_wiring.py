"""Setting Django up finds the reactors and binds the ports, and starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, socket, threading
opened = []
connect = socket.socket.connect
socket.socket.connect = lambda self, address: (opened.append(address), connect(self, address))[1]
import django
django.setup()
from django.db import connections
from reactor_coord.declare.entrance import entrance
from reactor_coord.storage.verbs import verbs
entrance(), verbs()
assert threading.active_count() == 1, threading.enumerate()
assert not opened, opened
assert all(connection.connection is None for connection in connections.all(initialized_only=True))
print("quiet")
"""


def test_setting_up_starts_no_thread_and_opens_no_connection() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "quiet", done.stderr
