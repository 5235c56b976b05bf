"""Names in Redis, written nowhere else: `<prefix>:{<primitive>:<encoded key>}:<part>`.

All parts of a resource share one hash tag, so that a resource is one slot of a cluster. What a key means is the
author's business; here it is any text, and two different texts never share a name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache

LONGEST = 200
"""Bytes of an encoded key that are still written out; a longer one is cut and ends in its hash."""

HELD = ("lock", "semaphore")
"""The primitives with holders and a line."""

RESOURCE_PARTS = ("hold", "line", "waiters", "meta", "fence")
MORE_PARTS = {"semaphore": ("leases",)}

_ESCAPED = re.compile(r"[%{}\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def to_bytes(text: str) -> bytes:
    """UTF-8 for whatever a Python string can hold, half a surrogate pair included."""
    return text.encode("utf-8", "surrogatepass")


def to_text(value: bytes | str) -> str:
    """The other way, for a reply that a client may have decoded already (`decode_responses`)."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def encode(key: str) -> str:
    """Percent-encode what would break a hash tag or a log line; `%~` before the hash of a long key cannot be escaped text."""
    safe = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in to_bytes(found.group())), key)
    if len(safe.encode()) <= LONGEST:
        return safe
    readable = safe.encode()[:100].decode("utf-8", "ignore")
    return f"{readable}%~{hashlib.sha256(to_bytes(key)).hexdigest()}"


def decode(encoded: str) -> str | None:
    """The key that was encoded so; None of a long one, which was cut."""
    if "%~" in encoded:
        return None
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found.group(1), 16)]), encoded.encode("utf-8", "replace"))
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


TYPES: Mapping[tuple[str, str], str] = {
    **{(primitive, part): "hash" for primitive in HELD for part in ("hold", "waiters", "meta")},
    **{(primitive, part): "zset" for primitive in HELD for part in ("line", "leases")},
    **{(primitive, "fence"): "string" for primitive in HELD},
    **{("rate_limit", part): kind for part, kind in (("state", "hash"), ("plans", "hash"), ("starts", "zset"))},
    ("period", "marks"): "hash",
    **{("ordered_lock", part): "hash" for part in ("state", "ids", "line")},
    ("", "sweep"): "string",
    ("", "waits"): "hash",
}
"""What kind of value each part is, by primitive and part. An index is a sorted set whatever its primitive."""


def type_of(name: bytes) -> str:
    """What kind of value belongs under a name; empty for a name that is none of ours."""
    _, primitive, _, part = described(name)
    return "zset" if part == "index" else TYPES.get((primitive, part), "")


def described(name: bytes) -> tuple[str, str, str, str]:
    """Prefix, primitive, encoded key and part of a name; a part is empty where the name has none.

    A record of what an owner waits for is the part `waits`, the seat of the sweep's leader `sweep`, both of no primitive.
    """
    text = name.decode("utf-8", "surrogateescape")
    if found := _RESOURCE.fullmatch(text):
        return found["prefix"], found["primitive"], found["key"], found["part"].partition(":")[0]
    if found := _SHARED.fullmatch(text):
        return found["prefix"], found["primitive"] or "", "", found["part"]
    return "", "", "", ""


_RESOURCE = re.compile(r"(?P<prefix>.*?):\{(?P<primitive>\w+):(?P<key>[^{}]*)\}:(?P<part>.+)", re.DOTALL)
_SHARED = re.compile(
    r"(?P<prefix>.*?):(?:(?P<part>index(?=:)|waits(?=:)|sweep$)(?::(?:(?<=index:)(?P<primitive>\w+)|.*))?)", re.DOTALL
)


class Names:
    """The names under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.resource = lru_cache(maxsize=8192)(self._resource)

    def tag(self, primitive: str, key: str) -> str:
        return f"{self.prefix}:{{{primitive}:{encode(key)}}}"

    def _resource(self, primitive: str, key: str) -> tuple[bytes, ...]:
        """hold, line, waiters, meta and fence of a key, and a semaphore's leases, in the order in which scripts read them."""
        tag = self.tag(primitive, key)
        return tuple(f"{tag}:{part}".encode() for part in (*RESOURCE_PARTS, *MORE_PARTS.get(primitive, ())))

    def index(self, primitive: str) -> bytes:
        """The sorted set of all live keys of a primitive, for listing and tending."""
        return f"{self.prefix}:index:{primitive}".encode()

    def slot_index(self, primitive: str, key: str) -> bytes:
        """A stand-in for the index in the resource's own slot: in a cluster a script may not reach the real one."""
        return f"{self.tag(primitive, key)}:index".encode()

    def waits(self, owner: str) -> bytes:
        """The record of what one owner waits for; on a single server the scripts write it, under the same name."""
        return f"{self.prefix}:waits:{owner}".encode("utf-8", "surrogatepass")

    def inbox(self, primitive: str, key: str, name: str) -> bytes:
        """The list on which one blocking waiter sleeps; in the slot of the (first) key it waits for."""
        return f"{self.tag(primitive, key)}:inbox:{name}".encode()
