"""The Lua files, read once: each is `line.lua` and its own text, known to the server by the SHA1 of both."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic operation."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The operation in `lua/<name>.lua`."""
    folder = resources.files("reactor_coord.coordination") / "lua"
    text = b"\n".join((folder / f"{part}.lua").read_bytes() for part in ("line", name))
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
