"""Names in Redis, written nowhere else: `<prefix>:{<primitive>:<encoded key>}:<part>`.

All parts of a resource share one hash tag, so that a resource is one slot of a cluster. What a key means is the
author's business; here it is any text, and two different texts never share a name.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

LONGEST = 200
"""Bytes of an encoded key that are still written out; a longer one is cut and ends in its hash."""

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
