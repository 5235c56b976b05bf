"""A reactor that a body runs, or a step that it calls: inside that body's execution, as far as coordination goes.

What the execution holds is lent to the work inside it, which takes it from no line and gives it back to nobody. Work of other
threads of the same body contends for what is lent, by a lock of this process; work one inside another does not. Any other key
is taken as by anyone. A context variable says which body is running; a thread that the body starts does not inherit it, and
passes `context=self.context`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reactor_coord.coordination import Ask, Requester
from reactor_coord.runtime.contention import seconds_to_wait
from reactor_coord.runtime.gates import Ending, Hold, Place, lost_keys

if TYPE_CHECKING:
    from reactor_coord.runtime.context import StepContext
    from reactor_coord.runtime.tree import Tree

_body: ContextVar[StepContext | None] = ContextVar("reactor_coord_body", default=None)


@contextmanager
def of_body(context: Any) -> Iterator[None]:
    """Inside the block this is the body that runs. Not in what its transaction does on commit: that is after it."""
    token = _body.set(context)
    try:
        yield
    finally:
        _body.reset(token)


def current() -> StepContext | None:
    """The context of the body that runs here; None outside any."""
    return _body.get()


class Lender:
    """What one execution holds, for the work inside its bodies."""

    def __init__(self, tree: Tree, *, is_open: bool = True) -> None:
        self._tree, self._is_open = tree, is_open

    def hold_of(self, primitive: str, key: str) -> Hold | None:
        """The execution's hold on it, if it has one."""
        held = (hold for hold in reversed(self._tree.holds) if hold.primitive == primitive and hold.is_fenced)
        return next((hold for hold in held if any(each.key == key for each in hold.taken.keys)), None)

    def stands_before(self, outer: Hold | None, key: str, declaration: Any) -> bool:
        """Whether the work inside meets this hold: one that is lent, or that it could only wait for in vain."""
        if outer is None or self._is_open:
            return outer is not None
        return getattr(declaration, "limit", 1) == 1 and (outer, key) not in lost_keys([outer])

    def lend(self, outer: Hold, key: str, place: Place, declaration: Any, patience: float | None) -> Hold:
        """Lend one key, when no other thread of the body has it lent; waits for that as the declaration waits for a key."""
        gate = outer.gate
        if not self._is_open:
            raise _refused(place, outer, key, "the very body that runs this holds it, so it would wait for itself")
        lock = self._tree.lent.setdefault((outer.primitive, key), threading.RLock())
        if not lock.acquire(
            timeout=seconds_to_wait(place, declaration, patience) if hasattr(declaration, "wait") else 0
        ):
            raise _refused(place, outer, key, "other work of the same body has it")
        taken = replace(outer.taken, keys=tuple(each for each in outer.taken.keys if each.key == key))
        lent: Any = Lent(gate, outer, lock)
        return Hold(lent, taken, place, outer.declaration, lost=outer.lost, is_told=False)


def _refused(place: Place, outer: Hold, key: str, why: str) -> Exception:
    contended = getattr(outer.gate, "contended", None) or _out_of_turn()
    return contended(  # type: ignore[no-any-return]
        f"{place.describe()} could not have the {outer.primitive} {key!r}: {why}. Run one after the other, or leave out "
        "options(independent=True)",
        reactor=place.reactor,
        step=place.step,
        primitive=outer.primitive,
        key=key,
        holder=outer.place.requester.owner,
    )


def _out_of_turn() -> Any:
    from reactor_coord.errors import OutOfTurn

    return OutOfTurn


@dataclass(eq=False)
class Lent:
    """The gate of what is lent: giving it back frees it for other threads of the body, and for nobody else."""

    gate: Any
    outer: Hold
    lock: Any
    is_given: bool = False
    once = False
    spends = False

    @property
    def primitive(self) -> str:
        """That of what is lent."""
        return self.outer.primitive

    def giving(self, hold: Hold, ending: Ending) -> list[Ask[tuple[str, ...]]]:
        """Nothing to send."""
        self.release(hold, ending)
        return []

    def release(self, hold: Hold, ending: Ending) -> None:
        """Free it, once."""
        if not self.is_given:
            self.is_given = True
            self.lock.release()

    def park(self, hold: Hold, horizon: float) -> None:
        """Work inside a body does not park."""

    def check(self, hold: Hold) -> None:
        """As the execution's own hold is looked at."""
        self.outer.gate.check(self.outer)

    def leave(self, keys: Iterable[str], requester: Requester, *, parked: bool = False) -> None:
        """It stands in no line."""


def borrowed(place: Place, primitive: str, declaration: Any, patience: float | None) -> tuple[list[Hold], Any]:
    """What of a declaration is lent, and what of it is left to take; None when nothing is."""
    lender = place.lender
    keys = declaration.keys if lender is not None else ()
    lent: list[Hold] = []
    rest = []
    try:
        for key in keys:
            text = place.text_of(key)
            outer = lender.hold_of(primitive, text) if lender is not None else None
            if lender is None or outer is None or not lender.stands_before(outer, text, declaration):
                rest.append(key)
            else:
                lent.append(lender.lend(outer, text, place, declaration, patience))
    except BaseException:
        for hold in lent:
            hold.gate.release(hold, Ending.REFUSED)
        raise
    if not lent:
        return [], declaration
    return lent, replace(declaration, keys=tuple(rest)) if rest else None
