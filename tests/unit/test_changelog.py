"""The changelog names what there is: what an author writes, what an operator types."""

from __future__ import annotations

import re
from pathlib import Path

import reactor_coord

ROOT = Path(__file__).resolve().parents[2]
NO_CONSTRUCTS = re.compile(r"View$|^Context$|^RollbackFailure$")
"""What a caller or a body is only given."""


def _constructs() -> set[str]:
    return {name for name in reactor_coord.__all__ if not NO_CONSTRUCTS.search(name) and not _is_raised(name)}


def _is_raised(name: str) -> bool:
    found = getattr(reactor_coord, name)
    return isinstance(found, type) and issubclass(found, BaseException)


def _missing(names: set[str]) -> list[str]:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    named = {word for quoted in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", quoted)}
    return sorted(names - named)


def test_u93_every_construct_is_in_the_changelog() -> None:
    assert len(_constructs()) > 20
    assert _missing(_constructs()) == []


def test_u93_every_command_is_in_the_changelog() -> None:
    commands = {path.stem for path in (ROOT / "reactor_coord" / "management" / "commands").glob("[!_]*.py")}
    assert len(commands) > 5
    assert _missing(commands) == []
