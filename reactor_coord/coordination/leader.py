"""Who leads the sweep: one name in one key with an expiry. A hint that saves work, never a promise that anything rests on."""

from __future__ import annotations

from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names, to_bytes, to_text


class Leadership:
    """One seat under one prefix."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._seat = f"{names.prefix}:sweep".encode()

    def claim(self, name: str, seconds: float) -> bool:
        """Take the free seat, or keep the own one, for so long; whether `name` sits there now."""
        milliseconds = max(1, round(seconds * 1000))
        taken, holder = self._connection.commands(
            ("SET", self._seat, to_bytes(name), "NX", "PX", milliseconds), ("GET", self._seat)
        )
        if taken:
            return True
        is_mine = holder is not None and to_text(holder) == name
        if is_mine:
            self._connection.commands(("PEXPIRE", self._seat, milliseconds))
        return is_mine

    def resign(self, name: str) -> None:
        """Leave the seat, if it is one's own."""
        holder = self._connection.commands(("GET", self._seat))[0]
        if holder is not None and to_text(holder) == name:
            self._connection.commands(("DEL", self._seat))
