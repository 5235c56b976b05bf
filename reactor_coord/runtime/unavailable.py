"""Redis cannot be reached: an execution in a worker steps aside and looks again, for `REDIS_PATIENCE` seconds.

A blink of the server is no reason to undo a workflow. Nothing runs meanwhile: what the place declares has not been taken. An
in-process run, which has a caller who waits, and a rollback, which has a patience of its own, get the error at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from reactor_coord import conf
from reactor_coord.engine.delays import OUTAGES
from reactor_coord.engine.records import Wait
from reactor_coord.engine.states import ParkKind
from reactor_coord.errors import CoordinationUnavailable
from reactor_coord.runtime.gates import Place
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock

WORDS = "Redis cannot be reached"
"""Who is in the way, as the row tells it."""


def wait_out(place: Place, error: BaseException) -> Parked | None:
    """The park that waits for Redis to come back; None for another error, in process, and when it has been away too long.

    What the place waited for before goes on being waited for: its line is left, and its wait counted, as if it had parked for
    that again.
    """
    if not isinstance(error, CoordinationUnavailable) or not place.parks:
        return None
    now = clock.present()
    before = place.previous or Wait(path=place.path, reactor=place.reactor, step=place.step)
    since = before.outage_since or now
    ends_at = since + timedelta(seconds=conf.settings().REDIS_PATIENCE)
    if now >= ends_at:
        return None
    looks = before.outage_looks + 1
    look_at = min(now + timedelta(seconds=OUTAGES.after(looks)), ends_at)
    waits_on = replace(before, since=before.since or now, holder=WORDS, outage_since=since, outage_looks=looks)
    return Parked(Park(ParkKind.RETRY, look_at, place.step, waits_on))
