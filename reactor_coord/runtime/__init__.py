"""The one runner, for a web process, a worker and a test alike; bound here to the declarations' port."""

from __future__ import annotations

from reactor_coord.coordination import set_waker
from reactor_coord.declare.entrance import bind_entrance
from reactor_coord.runtime import deleted
from reactor_coord.runtime.dispatch import wake
from reactor_coord.runtime.entrance import Runtime
from reactor_coord.runtime.runner import deliver

__all__ = ["deliver"]

bind_entrance(Runtime())
set_waker(wake)
deleted.connect()
