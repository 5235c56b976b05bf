"""Every test here has a database that threads and forked processes see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reactor_coord import Reactor
from reactor_coord.testing.proxy import Proxy
from tests.integration.runtime.shapes import FORMS, REACTORS


@pytest.fixture(params=FORMS)
def payment(request: pytest.FixtureRequest) -> type[Reactor]:
    """before, charge (locked), behind: with the charge as a step class, and inline."""
    return REACTORS[request.param]


@pytest.fixture
def redis_proxy(settings: object) -> Iterator[Proxy]:
    """Redis behind a proxy, for the project's cache alias; recorder and fault points keep to the server itself."""
    caches = settings.CACHES  # type: ignore[attr-defined]
    url = str(caches["default"]["LOCATION"])
    with Proxy(url) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REACTOR_COORD_RECORDER_URL", url)
        options = {**caches["default"]["OPTIONS"], "SOCKET_TIMEOUT": 0.5, "SOCKET_CONNECT_TIMEOUT": 0.5}
        behind = {**caches["default"], "LOCATION": proxy.url, "OPTIONS": options}
        settings.CACHES = {**caches, "default": behind}  # type: ignore[attr-defined]
        yield proxy
