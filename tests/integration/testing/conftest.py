"""How the reactors of these tests are started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reactor_coord import testing

Start = Callable[..., Any]


@pytest.fixture(params=["run", "enqueue"])
def start(request: pytest.FixtureRequest) -> Start:
    """Run a reactor in process, or enqueue it and drain: the assertions read both alike."""

    def started(reactor: Any, **inputs: Any) -> Any:
        found = getattr(reactor, request.param)(**inputs)
        testing.drain(timeout=10)
        return found

    return started
