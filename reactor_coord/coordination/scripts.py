"""The Lua files, read once: what they share before each one's own, known to the server by the SHA1 of the whole."""

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


_PARTS = {
    "due": ("clock", "due"),
    "take": ("clock", "take_free", "line", "hold", "arrival", "take"),
    "give": ("give_last", "clock", "line", "hold", "give"),
    "semaphore_take": ("clock", "line", "slots", "arrival", "semaphore_take"),
    "rate_limit": ("clock", "rate_limit"),
    "ordered": ("clock", "ordered"),
    "period": ("clock", "period"),
}
"""What a text is made of, where it is not the operation behind the common parts: a short cut comes before what it spares."""


@cache
def script(name: str) -> Script:
    """The operation in `lua/<name>.lua`."""
    folder = resources.files("reactor_coord.coordination") / "lua"
    kind = "slots" if name.startswith("semaphore_") else "hold"
    parts = _PARTS.get(name, ("clock", "line", kind, name))
    return _script(name, b"\n".join((folder / f"{part}.lua").read_bytes() for part in parts))


@cache
def chain(names: tuple[str, ...]) -> Script:
    """These operations as one, in this order; see `lua/chain.lua`."""
    own = {name: f"operation_{number}" for number, name in enumerate(dict.fromkeys(names), 1)}
    functions = [f"local function {own[name]}(KEYS, ARGV)\n".encode() + script(name).text + b"\nend" for name in own]
    calls = f"local CALLS = {{ {', '.join(own[name] for name in names)} }}".encode()
    folder = resources.files("reactor_coord.coordination") / "lua"
    return _script("+".join(names), b"\n".join([*functions, calls, (folder / "chain.lua").read_bytes()]))


def _script(name: str, text: bytes) -> Script:
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
