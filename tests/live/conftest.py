"""Every test here is `live`: real worker processes, real kills."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with the whole session's items: mark those of this directory."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
