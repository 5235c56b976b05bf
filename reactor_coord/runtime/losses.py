"""Holds that are gone while work goes on under them: told once, at the moment they are noticed, and in no body's way unseen.

The thread that renews holds notices a loss and leaves the telling to another, the teller: its signal may have slow receivers
and its row needs the database, and a renewal must wait for neither. What the teller cannot write (a row that is not
committed yet, a database that is locked by the very body) goes with the next checkpoint.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from django.db import connections

from reactor_coord.coordination import inspect
from reactor_coord.engine.events import HoldLost
from reactor_coord.errors import CoordinationError, LockLost
from reactor_coord.runtime.contention import describe_holder
from reactor_coord.runtime.gates import Hold, lost_keys

logger = logging.getLogger("reactor_coord")

AWAITED_SECONDS = 2.0
"""For how long the giving back of a lost hold waits until its loss has been told."""


def noticer(hold: Hold) -> Callable[[str], None]:
    """What the keeper calls with a key of this hold that it finds lost."""
    return partial(_notice, hold)


def _notice(hold: Hold, key: str) -> None:
    hold.lost.add(key)
    teller.ask(hold, key)


def fatal(holds: Iterable[Hold]) -> list[tuple[Hold, str]]:
    """Tell of every key of these that is lost, and return those whose declaration does not say `on_lost="warn"`.

    Asks Redis for a hold that has been out of sight as long as its ttl.
    """
    lost = lost_keys(holds)
    for hold, key in lost:
        _tell(hold, key)
    return [(hold, key) for hold, key in lost if hold.on_lost == "fail"]


def error(lost: list[tuple[Hold, str]], reactor: str, step: str, *, began: bool) -> LockLost:
    """The error of a step that lost these; `began`: its body had begun, so another may have been inside meanwhile."""
    hold, key = lost[0]
    names = ", ".join(name for _, name in lost)
    what = f"{'.'.join(part for part in (reactor, step) if part)} lost its hold on {names}"
    whose = f"; it is held by {hold.taken_by[key]} now" if key in hold.taken_by else ""
    if began:
        message = f"{what} before its body returned: another owner may have been inside{whose}. Raise ttl or keep auto_extend on"
    else:
        message = (
            f"{what} before its body began, so it did not begin{whose}. Retry the execution: it takes its keys again"
        )
    return LockLost(
        message, reactor=reactor, step=step, primitive=hold.primitive, key=key, holder=hold.taken_by.get(key)
    )


def is_kept_by(lost: list[tuple[Hold, str]], path: str) -> bool:
    """Whether all of these were taken at this place (see `Place.path`), and not around it: another attempt takes them again."""
    return all(hold.place.path == path for hold, _ in lost)


def _tell(hold: Hold, key: str) -> None:
    """Emit the event, once for each key of a hold."""
    with hold.telling:
        if key in hold.lost_and_told:
            return
        hold.lost_and_told.add(key)
    fence = next(held.fence for held in hold.taken.keys if held.key == key)
    hold.place.emit(
        HoldLost(
            step=hold.place.step,
            primitive=hold.primitive,
            key=key,
            fence=fence,
            held_by=hold.taken_by.get(key, ""),
            on_lost=hold.on_lost,
        ),
        at_once=True,
    )


def _look_for_another(hold: Hold, key: str) -> None:
    """Note who has the key now, for people."""
    if hold.primitive != "lock":
        return
    try:
        found = inspect.look(key).hold
    except CoordinationError as unknown:
        logger.debug("event=reactor_coord.holder_not_known key=%s error=%s", key, unknown)
        return
    if found is not None and (found.owner, found.claim) != (hold.taken.who.owner, hold.taken.who.claim):
        hold.taken_by[key] = describe_holder(found)


class _Teller:
    """One daemon thread that tells of losses; it starts with the first and ends when it has had none for a while."""

    LINGER_SECONDS = 10.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._changed = threading.Condition()
        self._asked: deque[tuple[Hold, str]] = deque()
        self._thread: threading.Thread | None = None

    def ask(self, hold: Hold, key: str) -> None:
        """Have it told."""
        with self._changed:
            self._asked.append((hold, key))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reactor-coord-losses", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def await_told(self, hold: Hold, seconds: float = AWAITED_SECONDS) -> None:
        """Wait until what was asked for this hold has been told, for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: not any(each is hold for each, _ in self._asked), seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._asked, self.LINGER_SECONDS):
                    self._thread = None
                    return
                hold, key = self._asked[0]
            try:
                _look_for_another(hold, key)
                _tell(hold, key)
            except Exception:
                logger.exception("event=reactor_coord.loss_not_told key=%s", key)
            finally:
                connections.close_all()
                with self._changed:
                    self._asked.popleft()
                    self._changed.notify_all()


teller = _Teller()
os.register_at_fork(after_in_child=teller.reset)
