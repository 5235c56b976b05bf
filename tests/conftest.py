"""What every test has: a key prefix of its own. The fixtures themselves are those users have."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# An example that takes long says something of the machine, not of the code: a busy one would fail properties that hold.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")

# A run that a script starts in the background inherits that an interrupt is ignored, and so would every process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_installed = any(entry.name == "reactor_coord" for entry in entry_points(group="pytest11"))
pytest_plugins = [] if _installed else ["reactor_coord.testing.plugin"]


@pytest.fixture(autouse=True)
def _own_prefix(request: pytest.FixtureRequest) -> None:
    """Not for the pure layers, which know neither Django nor Redis."""
    if "tests/unit/" not in request.node.nodeid:
        request.getfixturevalue("reactor_prefix")


@pytest.fixture(autouse=True)
def _own_reactors() -> Iterator[None]:
    """What a test declares inside itself is forgotten with it: the checks of a later one would find it, its limits gone."""
    from reactor_coord.declare import registry

    before = dict(registry._definitions)
    yield
    declared = [name for name in registry._definitions if name not in before]
    for name in declared:
        if not _can_be_imported(registry._definitions[name].cls):
            del registry._definitions[name]


def _can_be_imported(declared: type) -> bool:
    found: Any = sys.modules.get(declared.__module__)
    for name in declared.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is declared


@pytest.fixture(scope="session")
def live_worker_app() -> str:
    """The app that live workers run."""
    return "tests.celery_app"
