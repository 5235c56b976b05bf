"""What every test has: a key prefix of its own. The fixtures themselves are those users have."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

_installed = any(entry.name == "reactor_coord" for entry in entry_points(group="pytest11"))
pytest_plugins = [] if _installed else ["reactor_coord.testing.plugin"]


@pytest.fixture(autouse=True)
def _own_prefix(request: pytest.FixtureRequest) -> None:
    """Not for the pure layers, which know neither Django nor Redis."""
    if "tests/unit/" not in request.node.nodeid:
        request.getfixturevalue("reactor_prefix")


@pytest.fixture(scope="session")
def live_worker_app() -> str:
    """The app that live workers run."""
    return "tests.celery_app"
