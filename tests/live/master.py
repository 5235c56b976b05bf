"""A worker's main process that has used everything before it forks: the database, Redis, and a lock of its own.

Asked for by the environment; the children must open their own connections and renew their own holds.
"""

from __future__ import annotations

import os
from typing import Any

from celery import signals

ENVIRONMENT = "RC_TEST_LOCK_IN_MASTER"
KEY = "held by the main process"


def use_everything(**_: Any) -> None:
    """Query, and take a key that is then kept."""
    from reactor_coord.coordination import locks
    from reactor_coord.coordination.types import Requester, Taken
    from reactor_coord.models import Execution

    Execution.objects.exists()
    taken = locks().take([KEY], Requester(owner="master", claim="master"), ttl=1)
    assert isinstance(taken, Taken)
    locks().watch(taken, lambda key: None)


if os.environ.get(ENVIRONMENT):
    signals.worker_init.connect(use_everything, weak=False)
