"""How an execution's status changes: the one table of (status, move) -> status, and the columns that each move sets.

A `Move` names what happens to the row of an execution. `TABLE` says from which statuses it is possible and to which status
each leads; a pair that is not in it is refused. The functions below make a `Transition`: a move with the columns it sets.
`storage.transitions` and the tree of a running execution are the only code that writes what a transition says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from reactor_coord.engine.records import Failure, ParkedHold, Wait
from reactor_coord.engine.states import TERMINAL, ExecutionStatus, Mode, ParkKind
from reactor_coord.errors import ReactorCoordError

S = ExecutionStatus


class Move(StrEnum):
    """What happens to the row of an execution."""

    CLAIM = "claim"
    """A process takes the row under a fresh lease."""
    PUT_BACK = "put_back"
    """A message came before the time of a wait that only time ends: the row goes on waiting."""
    SET_ASIDE = "set_aside"
    """The code of this process does not have the definition."""
    PARK = "park"
    PAUSE = "pause"
    HAND_OVER = "hand_over"
    """An in-process run leaves the rest to a worker."""
    BEGIN_ROLLBACK = "begin_rollback"
    COMPLETE = "complete"
    SKIP = "skip"
    """An element of a map that has nothing to do ends before it begins."""
    HALT = "halt"
    FAIL = "fail"
    CANCEL = "cancel"
    """The end of the rollback of an execution that was cancelled."""
    REVERT = "revert"
    """The end of the rollback of an execution that was undone after it had ended."""
    LOSE_WORKER = "lose_worker"
    """The process died, or was told to go down: another one takes the row up again."""
    ABORT = "abort"
    """The process of an in-process run died: the row is left to an operator."""
    DEFER = "defer"
    """Redis or the database could not be reached: the row is tried again later, at no cost."""
    ANSWER = "answer"
    EXPIRE = "expire"
    """No answer came in time."""
    REPEAT = "repeat"
    """A message met the execution while it wrote its pause: it is taken up once more."""

    CANCEL_UNBEGUN = "cancel_unbegun"
    CANCEL_BEGUN = "cancel_begun"
    STOP = "stop"
    """A cancellation that undoes nothing."""
    UNDO = "undo"
    UNDO_AGAIN = "undo_again"
    CLOSE_ROLLBACK = "close_rollback"
    """An operator has dealt with what an incomplete rollback left, or accepts it."""
    RESUME = "resume"
    RESUME_ROLLBACK = "resume_rollback"

    GO_ON = "go_on"
    """A composed child whose root was taken up again."""
    GO_ON_BACK = "go_on_back"
    """A composed child that was taken up in the middle of its own rollback."""
    CLOSE_FAILED = "close_failed"
    """A composed child, or an element run in process, whose rollback has ended after a failure."""
    CLOSE_CANCELLED = "close_cancelled"
    """The same after a cancellation or an undo."""
    CLOSE_REVERTED = "close_reverted"
    """The same of one that had ended well, for whatever reason it is undone."""


def _to(target: S, *sources: S) -> Mapping[S, S]:
    return MappingProxyType(dict.fromkeys(sources, target))


_IDLE = (S.READY, S.PARKED, S.PAUSED, S.NEEDS_DEFINITION)

TABLE: Mapping[Move, Mapping[S, S]] = MappingProxyType(
    {
        Move.CLAIM: {**_to(S.RUNNING, S.READY, S.PARKED), S.ROLLING_BACK: S.ROLLING_BACK},
        Move.PUT_BACK: _to(S.PARKED, S.RUNNING),
        Move.SET_ASIDE: _to(S.NEEDS_DEFINITION, S.RUNNING, S.ROLLING_BACK),
        Move.PARK: {S.RUNNING: S.PARKED, S.ROLLING_BACK: S.ROLLING_BACK},
        Move.PAUSE: _to(S.PAUSED, S.RUNNING),
        Move.HAND_OVER: _to(S.READY, S.RUNNING),
        Move.BEGIN_ROLLBACK: _to(S.ROLLING_BACK, S.RUNNING),
        Move.COMPLETE: _to(S.COMPLETED, S.RUNNING),
        Move.SKIP: _to(S.COMPLETED, S.READY),
        Move.HALT: _to(S.HALTED, S.RUNNING),
        Move.FAIL: _to(S.FAILED, S.ROLLING_BACK),
        Move.CANCEL: _to(S.CANCELLED, S.ROLLING_BACK),
        Move.REVERT: _to(S.REVERTED, S.ROLLING_BACK),
        Move.LOSE_WORKER: {S.RUNNING: S.READY, S.ROLLING_BACK: S.ROLLING_BACK},
        Move.ABORT: _to(S.ABORTED, S.RUNNING, S.ROLLING_BACK, S.READY, S.PARKED, S.PAUSED),
        Move.DEFER: {S.RUNNING: S.PARKED, S.ROLLING_BACK: S.ROLLING_BACK},
        Move.ANSWER: _to(S.READY, S.PAUSED),
        Move.EXPIRE: _to(S.READY, S.PAUSED),
        Move.REPEAT: _to(S.READY, S.PAUSED),
        Move.CANCEL_UNBEGUN: _to(S.CANCELLED, *_IDLE),
        Move.CANCEL_BEGUN: _to(S.ROLLING_BACK, *_IDLE),
        Move.STOP: _to(S.CANCELLED, S.RUNNING, *_IDLE),
        Move.UNDO: _to(S.ROLLING_BACK, S.COMPLETED, S.HALTED, S.ABORTED),
        Move.UNDO_AGAIN: _to(S.ROLLING_BACK, S.FAILED),
        Move.CLOSE_ROLLBACK: _to(S.FAILED, S.FAILED),
        Move.RESUME: _to(S.READY, S.ABORTED, S.NEEDS_DEFINITION),
        Move.RESUME_ROLLBACK: _to(S.ROLLING_BACK, S.ABORTED, S.NEEDS_DEFINITION),
        Move.GO_ON: _to(S.RUNNING, S.READY, S.PARKED, S.PAUSED, S.ABORTED),
        Move.GO_ON_BACK: _to(S.ROLLING_BACK, S.READY, S.PARKED, S.PAUSED, S.ABORTED),
        # A child that an earlier rollback has closed stays as that closed it.
        Move.CLOSE_FAILED: {**_to(S.FAILED, *S), S.CANCELLED: S.CANCELLED, S.REVERTED: S.REVERTED},
        Move.CLOSE_CANCELLED: {**_to(S.CANCELLED, *S), S.FAILED: S.FAILED, S.REVERTED: S.REVERTED},
        Move.CLOSE_REVERTED: _to(S.REVERTED, S.COMPLETED, S.HALTED),
    }
)
"""Where each move leads from each status in which it is possible."""


class ImpossibleMove(ReactorCoordError):
    """A move that the table does not have for this status: a mistake of the code that asked for it."""

    code = "impossible_move"


def is_possible(status: str, move: Move) -> bool:
    """Whether an execution in this status can make the move."""
    return ExecutionStatus(status) in TABLE[move]


def target_of(status: str, move: Move) -> ExecutionStatus:
    """Return the status that the move leads to; raises `ImpossibleMove`."""
    try:
        return TABLE[move][ExecutionStatus(status)]
    except KeyError:
        raise ImpossibleMove(f"An execution that is {status} cannot {move.value}") from None


def sources_of(move: Move) -> frozenset[ExecutionStatus]:
    """Return the statuses in which the move is possible."""
    return frozenset(TABLE[move])


UNDER_LEASE = frozenset({Move.CLAIM, Move.BEGIN_ROLLBACK, Move.GO_ON, Move.GO_ON_BACK})
"""After these a process works on the tree; every other move leaves its row without a lease."""

NO_LEASE: Mapping[str, Any] = MappingProxyType({"lease_token": "", "lease_expires_at": None})
NO_WAIT: Mapping[str, Any] = MappingProxyType({"park_kind": "", "waiting_on": None, "holds_kept": []})


@dataclass(frozen=True, slots=True)
class Transition:
    """A move with the columns it sets, beside those that follow from the status it leads to."""

    move: Move
    columns: Mapping[str, Any] = field(default_factory=dict)

    def changes(self, status: str) -> dict[str, Any]:
        """Return all columns to write on a row in this status, the new status among them; raises `ImpossibleMove`."""
        target = target_of(status, self.move)
        return {**_follows_from(self.move, target), **self.columns, "status": target.value}

    def columns_of_all(self) -> dict[str, Any]:
        """Return the columns to write, but for the status, that are the same from every status of the move."""
        columns = self.changes(min(TABLE[self.move]))
        del columns["status"]
        return columns


def _follows_from(move: Move, target: ExecutionStatus) -> dict[str, Any]:
    lease = {} if move in UNDER_LEASE else dict(NO_LEASE)
    if target in TERMINAL:
        return {**lease, **NO_WAIT, "resume_at": None}
    return {**lease, "finished_at": None}


# ---- what each move writes. `now` is the time by the clock of the rows; `look_at` the time at which the sweep looks.


def claim(token: str, expires_at: Any, worker: str) -> Transition:
    """A process takes the row. The mark of an earlier wake goes: this claim answers it."""
    return Transition(
        Move.CLAIM,
        {
            "lease_token": token,
            "lease_expires_at": expires_at,
            "worker": worker,
            "wake_requested": False,
            "looks": 0,
        },
    )


def _waits(kind: ParkKind, waits_on: Wait, kept: Sequence[ParkedHold]) -> dict[str, Any]:
    return {"park_kind": kind, "waiting_on": waits_on.to_json(), "holds_kept": _listed(kept)}


def _listed(kept: Sequence[ParkedHold]) -> list[dict[str, Any]]:
    return [each.to_json() for each in kept]


def put_back(look_at: datetime | None = None) -> Transition:
    """The wait goes on as it was; until `look_at`, if that is given."""
    return Transition(Move.PUT_BACK, {} if look_at is None else {"resume_at": look_at})


def set_aside(reason: str) -> Transition:
    """Keep the row for code that has its definition."""
    return Transition(Move.SET_ASIDE, {"reason": reason, "resume_at": None})


def park(kind: ParkKind, waits_on: Wait, look_at: datetime, kept: Sequence[ParkedHold]) -> Transition:
    """Step aside until `look_at` at the latest, on what `waits_on` says, keeping these holds."""
    columns = {**_waits(kind, waits_on, kept), "resume_at": look_at}
    return Transition(Move.PARK, columns)


def pause(waits_on: Wait, ends_at: datetime | None) -> Transition:
    """Wait for an answer, until `ends_at` if that is given, holding nothing."""
    columns = {**_waits(ParkKind.INTERRUPT, waits_on, ()), "mode": Mode.WORKER, "resume_at": ends_at}
    return Transition(Move.PAUSE, columns)


def hand_over(look_at: datetime, kept: Sequence[ParkedHold]) -> Transition:
    """Leave the rest to a worker, which adopts these holds."""
    return Transition(Move.HAND_OVER, {"mode": Mode.WORKER, "resume_at": look_at, "holds_kept": _listed(kept)})


def begin_rollback(failure: Failure | None) -> Transition:
    """The way forward has ended, in this failure or, without one, in a cancellation."""
    return Transition(Move.BEGIN_ROLLBACK, {"failure": failure.to_json() if failure is not None else None})


def complete(now: datetime, result: Any) -> Transition:
    """All steps are done."""
    return Transition(Move.COMPLETE, {"result": result, "finished_at": now})


def halt(now: datetime, result: Any, reason: str) -> Transition:
    """A body stopped the execution cleanly."""
    return Transition(Move.HALT, {"result": result, "reason": reason, "finished_at": now})


def fail(now: datetime, failure: Failure, reason: str) -> Transition:
    """The rollback has ended; `failure` lists what of it is incomplete."""
    return Transition(Move.FAIL, {"failure": failure.to_json(), "reason": reason, "finished_at": now})


def cancel(now: datetime, reason: str) -> Transition:
    """The rollback has ended, and nothing stands."""
    return Transition(Move.CANCEL, {"failure": None, "reason": reason, "finished_at": now})


def revert(now: datetime, reason: str) -> Transition:
    """What an ended execution had done is undone, and nothing stands."""
    return Transition(Move.REVERT, {"failure": None, "reason": reason, "finished_at": now})


def lose_worker(look_at: Any, losses: Any) -> Transition:
    """Another process takes the row up; `losses` is the number of deaths not yet charged to a step, this one included."""
    columns = {"mode": Mode.WORKER, "resume_at": look_at, "looks": 0, "workers_lost": losses}
    return Transition(Move.LOSE_WORKER, columns)


def abort(now: Any, losses: Any, reason: str) -> Transition:
    """Leave an in-process run to an operator."""
    return Transition(Move.ABORT, {"finished_at": now, "workers_lost": losses, "reason": reason})


def abort_child(now: Any) -> Transition:
    """End a child that nothing goes on with."""
    return Transition(Move.ABORT, {"finished_at": now})


def complete_at_once(now: datetime, result: Any, reason: str) -> Transition:
    """An element that is skipped is over before it is written."""
    return Transition(Move.SKIP, {"result": result, "reason": reason, "started_at": now, "finished_at": now})


def follow(move: Move) -> Transition:
    """A composed child's row goes where its root's goes; all else about it stays."""
    return Transition(move)


def defer(look_at: datetime, waits_on: Wait, losses: Any) -> Transition:
    """Try again at `look_at` what infrastructure refused. `losses`: bodies cut off that are charged to no step yet."""
    columns = {**_waits(ParkKind.RETRY, waits_on, ()), "resume_at": look_at, "workers_lost": losses}
    return Transition(Move.DEFER, columns)


def answer(look_at: datetime) -> Transition:
    """The question has its answer: a worker goes on."""
    return Transition(Move.ANSWER, {"mode": Mode.WORKER, "resume_at": look_at})


def expire() -> Transition:
    """The question has had no answer in time: a worker goes on, and fails the step."""
    return Transition(Move.EXPIRE, {"mode": Mode.WORKER})


def repeat(look_at: datetime) -> Transition:
    """Take a pause up once more."""
    return Transition(Move.REPEAT, {"resume_at": look_at})


def cancel_unbegun(now: datetime, reason: str) -> Transition:
    """End what has done nothing yet."""
    columns = {
        "cancel_requested": True,
        "cancel_reason": reason,
        "reason": reason,
        "finished_at": now,
    }
    return Transition(Move.CANCEL_UNBEGUN, columns)


def cancel_begun(look_at: datetime, reason: str) -> Transition:
    """Have a worker undo what was done. What it waits on and keeps stays in the row: the rollback gives it back."""
    columns = {
        "cancel_requested": True,
        "cancel_reason": reason,
        "cancel_as_it_stands": False,
        "park_kind": "",
        "failure": None,
        "resume_at": look_at,
        "mode": Mode.WORKER,
    }
    return Transition(Move.CANCEL_BEGUN, columns)


def stop(now: datetime, reason: str) -> Transition:
    """End it as it stands: what it did is not undone."""
    columns = {
        "cancel_requested": True,
        "cancel_reason": reason,
        "cancel_as_it_stands": True,
        "reason": reason,
        "finished_at": now,
    }
    return Transition(Move.STOP, columns)


def undo(look_at: datetime, reason: str) -> Transition:
    """Have a worker undo a finished execution. A cancellation that came too late for it is answered so."""
    columns = {
        "cancel_requested": False,
        "cancel_as_it_stands": False,
        "mode": Mode.WORKER,
        "resume_at": look_at,
        "reason": "",
        "failure": None,
        "cancel_reason": reason,
    }
    return Transition(Move.UNDO, columns)


def undo_again(look_at: datetime, failure: Failure) -> Transition:
    """Have a worker try again what an earlier rollback could not undo."""
    columns = {"mode": Mode.WORKER, "resume_at": look_at, "reason": "", "failure": failure.to_json()}
    return Transition(Move.UNDO_AGAIN, columns)


def close_rollback(failure: Failure, reason: str) -> Transition:
    """The rollback is as complete as it will be; `failure` says who closed it and why."""
    return Transition(Move.CLOSE_ROLLBACK, {"failure": failure.to_json(), "reason": reason})


def resume(look_at: datetime, *, turned_back: bool) -> Transition:
    """Have a worker go on where the execution stopped: forward, or with the rollback that it was in."""
    move = Move.RESUME_ROLLBACK if turned_back else Move.RESUME
    return Transition(move, {"mode": Mode.WORKER, "resume_at": look_at, "reason": ""})


def go_on(*, turned_back: bool) -> Transition:
    """A composed child goes on with its root."""
    return Transition(Move.GO_ON_BACK if turned_back else Move.GO_ON)


def close(now: datetime, *, failed: bool) -> Transition:
    """The rollback of a composed child, or of an element run in process, that was under way has ended."""
    return Transition(Move.CLOSE_FAILED if failed else Move.CLOSE_CANCELLED, {"finished_at": now})


def close_reverted(now: datetime) -> Transition:
    """A composed child, or an element run in process, that had ended well is undone."""
    return Transition(Move.CLOSE_REVERTED, {"finished_at": now})
