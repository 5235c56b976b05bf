"""How long this machine may take, measured once in each test process: the start of a Python that imports Django.

Tests wait for conditions, and assert orders and counts. Where a promise is one of time, the test has the alternative set far
off (a look after a minute, a lease of half a minute), and asserts that it was not that: within `LATE` of what was promised.
"""

from __future__ import annotations

import subprocess
import sys
import time

IDLE_SECONDS = 0.3
"""What that start takes on an idle machine of the slower kind."""

MOST = 4.0
"""A machine that is slower than so many idle ones is not waited for in proportion: a failing test must end."""


def _slowness() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import django.db.models"], check=True)
    return min(MOST, max(1.0, (time.monotonic() - begun) / IDLE_SECONDS))


SLOWNESS = _slowness()
"""By how much it is slower, from 1."""

LATE = 3.0 + 2.0 * SLOWNESS
"""Seconds that other work on the machine may add to what is done at once: 5 to 11."""


def patience(seconds: float) -> float:
    """Seconds to wait for what takes an idle machine at most so many.

    Up to 20 are for one thing, which a look after a minute must not bring about: they never become a minute. More are for
    the work of many executions, which takes what it takes.
    """
    most = 45.0 if seconds <= 20 else 150.0
    return max(seconds, min(most, 2.0 * seconds * SLOWNESS))


PATIENCE = patience(10)
"""Seconds to wait for what one execution does: 20 to 45."""
