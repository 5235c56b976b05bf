"""What must be true of a point, wherever the worker died: told as violations, each under the name of its rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reactor_coord.testing.effects import SIDES
from tests.live.chaos.journal import BEGAN, ENDED, Line
from tests.live.chaos.stage import Ended, Played
from tests.live.chaos.variants import COMPLETED, PARCELS

NOT_COMPENSATED = frozenset({"opening", "receipt", "confirm", "before", "behind"})
"""Steps that have an undo and no compensate: killed in their body, they are listed as what may have run."""

ORDERS: dict[str, tuple[str, ...]] = {
    "Everything": ("opening", "reserve", "post", "charge", "receipt", "confirm", "shaky", "last"),
    "Rival": ("before", "contended", "behind"),
}
"""By reactor: bodies of which each comes after the one before it, so that they are undone in the reverse of it."""

BODIES: dict[str, tuple[str, ...]] = {
    **ORDERS,
    "Everything": (*ORDERS["Everything"], "letter", *(f"parcels.{name}" for name in PARCELS)),
}
"""By reactor: all its bodies, also those that may end in any order."""

ATTEMPTS = {"shaky": 2}
"""How often a body begins when nobody dies, where that is not once."""

RETURNED = frozenset({SIDES["body.after"], SIDES["rollback.after_undo_body"]})


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it must be. `rule` is a name of `RULES` or `RULES_OF_ALL`."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def violations(played: Played) -> list[Violation]:
    """All that is wrong with it."""
    each = [Violation(name, what) for seen in _parts(played) for name, rule in RULES.items() for what in rule(seen)]
    return each + [Violation(name, what) for name, rule in RULES_OF_ALL.items() for what in rule(played)]


class Seen:
    """One execution of a point, with the questions that the rules ask of its journal."""

    def __init__(self, played: Played, ended: Ended) -> None:
        self.ended = ended
        self.ends = played.variant.ends
        self.is_to_fail = played.variant.ending == "fail" and not played.variant.is_inline
        self.bodies, self.order = BODIES[ended.part.reactor], ORDERS[ended.part.reactor]
        self.is_completed = ended.status in COMPLETED
        self.is_absent = not ended.status
        self.listed = [entry.get("step", "") for entry in (ended.failure or {}).get("rollback_failures", ())]
        self._before = f"{ended.part.who}/" if ended.part.who else ""
        self._lines = played.lines
        self._cut_off = _cut_off(played)

    def sides(self, what: str, name: str, side: str) -> list[Line]:
        """Those lines, in order."""
        wanted = (what, f"{self._before}{name}", side)
        return [line for line in self._lines if (line.what, line.name, line.side) == wanted]

    def count(self, what: str, name: str, side: str) -> int:
        """How many."""
        return len(self.sides(what, name, side))

    def once_more(self, what: str, name: str) -> int:
        """How often more than usual it may happen: once for each that died in it, unless what came of it was written."""
        return self._cut_off.count((what, f"{self._before}{name}"))

    def cleanups(self, name: str) -> list[Line]:
        """The ends of its compensations and undos, in order."""
        found = [*self.sides("undo", name, ENDED), *self.sides("comp", name, ENDED)]
        return sorted(found, key=lambda line: line.at)

    def begun(self) -> list[str]:
        """The bodies that began."""
        return [name for name in self.bodies if self.count("run", name, BEGAN)]


def _parts(played: Played) -> list[Seen]:
    return [Seen(played, ended) for ended in played.ended]


def _cut_off(played: Played) -> list[tuple[str, str]]:
    """The bodies and cleanups (what, name) in which somebody died, unless what came of them was written."""
    found = [_cut_off_in(role, death, played.lines) for role, death in played.deaths.items()]
    return [each for each in found if each is not None]


def _cut_off_in(role: str, death: Line, lines: Sequence[Line]) -> tuple[str, str] | None:
    inside, has_returned = None, False
    for line in lines:
        if line.role != role:
            continue
        if line.side == BEGAN:
            inside, has_returned = (line.what, line.name), False
        elif line.what == "effect" and line.name in RETURNED:
            has_returned = True
        elif line.notes.get("kind") == "commit" and has_returned and line != death:
            inside = None
    return inside


# ---- the rules


def _status(seen: Seen) -> Iterator[str]:
    if seen.is_absent:
        return
    status, why = seen.ended.status, _why(seen)
    if status not in seen.ends:
        yield f"it is {status}, not {' or '.join(sorted(seen.ends))}; failure: {why}"
    elif status == "failed" and not why.startswith("EndFailed") and not seen.listed:
        yield f"it failed by itself: {why}"
    elif seen.is_to_fail and not why.startswith("EndFailed"):
        yield f"it failed for another reason: {why}"


def _why(seen: Seen) -> str:
    failure = seen.ended.failure or {}
    return f"{failure.get('error_type', '')}: {failure.get('message', '')} at {failure.get('step', '')!r}"


def _finished_once(seen: Seen) -> Iterator[str]:
    for name in seen.bodies:
        ends, allowed = seen.count("run", name, ENDED), 1 + seen.once_more("run", name)
        if ends > allowed:
            yield f"{name} ended {ends} times, {allowed} at most"
        if seen.is_completed and not ends:
            yield f"{name} never ended, and the execution is completed"


def _begun_once(seen: Seen) -> Iterator[str]:
    for name in seen.bodies:
        begins, allowed = seen.count("run", name, BEGAN), ATTEMPTS.get(name, 1) + seen.once_more("run", name)
        if begins > allowed:
            yield f"{name} began {begins} times, {allowed} at most"


def _forgotten(seen: Seen) -> Iterator[str]:
    """A body that began, and stands nowhere: neither cleaned up since nor listed."""
    if seen.is_completed or seen.is_absent:
        return
    for name in seen.begun():
        last = seen.sides("run", name, BEGAN)[-1].at
        is_cleaned = any(line.at >= last for line in seen.cleanups(name))
        if not is_cleaned and name.partition(".")[0] not in seen.listed:
            yield f"{name} began and was neither cleaned up nor listed"


def _cleaned_once(seen: Seen) -> Iterator[str]:
    for name in seen.bodies:
        for what in ("undo", "comp"):
            ends, allowed = seen.count(what, name, ENDED), 1 + seen.once_more(what, name)
            if ends > allowed:
                yield f"the {what} of {name} ended {ends} times, {allowed} at most"
        if seen.is_completed and seen.cleanups(name):
            yield f"{name} was cleaned up, and the execution is completed"


def _cleaned_in_vain(seen: Seen) -> Iterator[str]:
    """One that may have begun may be compensated; nothing else that did not begin."""
    never = [name for name in seen.bodies if seen.cleanups(name) and not seen.count("run", name, BEGAN)]
    undone = [name for name in never if seen.count("undo", name, ENDED)]
    if undone or len(never) > 1:
        yield f"cleaned up without having begun: {', '.join(undone or never)}"


def _undo_meets_its_value(seen: Seen) -> Iterator[str]:
    for name in seen.bodies:
        ends = seen.sides("run", name, ENDED)
        made = ends[-1].notes["token"] if ends else None
        for undo in seen.sides("undo", name, BEGAN):
            if undo.notes["token"] != made:
                yield f"the undo of {name} met {undo.notes['token']}, the body made {made}"


def _one_key(seen: Seen) -> Iterator[str]:
    for name in seen.bodies:
        keys = {line.notes["key"] for line in seen.sides("run", name, BEGAN)}
        if len(keys) > 1:
            yield f"{name} had several idempotency keys: {', '.join(sorted(keys))}"


def _newest_first(seen: Seen) -> Iterator[str]:
    ends = {name: found[-1].at for name in seen.order if (found := seen.cleanups(name))}
    names = list(ends)
    for earlier, later in itertools.pairwise(names):
        if ends[earlier] < ends[later]:
            yield f"{earlier} was cleaned up before {later}, which came after it"


def _needlessly_listed(seen: Seen) -> Iterator[str]:
    for entry in (seen.ended.failure or {}).get("rollback_failures", ()):
        if entry.get("step") not in NOT_COMPENSATED:
            yield f"listed though it can be cleaned up: {entry}"


def _postings(seen: Seen) -> Iterator[str]:
    wanted = int(seen.is_completed and "post" in seen.bodies)
    if seen.ended.postings != wanted:
        yield f"{seen.ended.postings} lines in the ledger, not {wanted}"


RULES: dict[str, Callable[[Seen], Iterator[str]]] = {
    "status": _status,
    "finished once": _finished_once,
    "begun once": _begun_once,
    "forgotten": _forgotten,
    "cleaned once": _cleaned_once,
    "cleaned in vain": _cleaned_in_vain,
    "undo meets its value": _undo_meets_its_value,
    "one key": _one_key,
    "newest first": _newest_first,
    "needlessly listed": _needlessly_listed,
    "ledger": _postings,
}
"""Of each execution."""


def _gone(played: Played) -> Iterator[str]:
    """A start is one statement by itself, whose row is there from then on."""
    written = [line for line in played.effects if _is_start(line) and line != played.died_at]
    there = [ended for ended in played.ended if ended.status]
    if len(there) < len(written):
        yield f"{len(written)} executions were started, {len(there)} are there"


def _is_start(line: Line) -> bool:
    return line.name == "INSERT execution" and line.notes.get("kind") == "commit"


RULES_OF_ALL: dict[str, Callable[[Played], Iterable[str]]] = {
    "gone": _gone,
    "unfinished": lambda played: played.unfinished,
    "held": lambda played: played.held,
}
"""Of the point as a whole."""
