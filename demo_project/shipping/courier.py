"""A courier's API as its customers meet it: it counts who comes, by its own clock, and turns away whoever comes too often.

It knows nothing of `reactor_coord`. Its book is a file (`DEMO_COURIER` names it) that its "servers", the processes that
call it, share under a lock of the file system; without one it counts nothing and takes everything.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_project.shipping.models import Booking

QUOTA_PER_SECOND = 9
"""In any second, by the courier's clock.

The limit in the settings is 5: a start is counted when it sets out, not when it arrives, and each of the worker's four
processes may have one under way that comes late. 5 + 4 can never be exceeded, however slow the machine is.
"""

TAKES_SECONDS = 0.01


class Unavailable(Exception):
    """Not now: come again later."""


class TooMany(Unavailable):
    """The quota is used up (what HTTP calls 429)."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One line of the courier's book. `taken` false: turned away."""

    order: int
    at: float
    taken: bool


def book(order_id: int, *, idempotency_key: str) -> dict[str, Any]:
    """Have a parcel fetched, once per key. Raises TooMany."""
    if not _admit(order_id):
        raise TooMany(f"more than {QUOTA_PER_SECOND} in a second: order {order_id} was turned away")
    time.sleep(TAKES_SECONDS)
    booking, _ = Booking.objects.get_or_create(key=idempotency_key, defaults={"order_id": order_id})
    return {"id": booking.pk, "order": order_id}


def cancel(booking: int) -> None:
    """Call a parcel off."""
    Booking.objects.filter(pk=booking).update(cancelled=True)


def visits(path: Path) -> list[Visit]:
    """The courier's book so far."""
    if not path.exists():
        return []
    return [Visit(**json.loads(line)) for line in path.read_text().splitlines()]


def busiest_second(seen: list[Visit]) -> int:
    """The most visits within any second."""
    times = sorted(visit.at for visit in seen)
    return max((sum(1 for at in times[i:] if at < first + 1) for i, first in enumerate(times)), default=0)


def _admit(order_id: int) -> bool:
    path = os.environ.get("DEMO_COURIER")
    if not path:
        return True
    with Path(path).open("a") as book_file:
        fcntl.flock(book_file, fcntl.LOCK_EX)
        now = time.time()
        recent = sum(1 for visit in visits(Path(path)) if visit.taken and visit.at > now - 1)
        taken = recent < QUOTA_PER_SECOND
        book_file.write(json.dumps({"order": order_id, "at": now, "taken": taken}) + "\n")
    return taken
