"""The ways through the reactor, and how each must end wherever a worker dies on it."""

from __future__ import annotations

from dataclasses import dataclass

PARCELS = ["p0", "p1", "p2"]
"""The elements of the reactor's map."""

LEASES = "RC_CHAOS_LEASES"
"""The environment's name for the seconds of every lease in Redis."""

ROLLED_BACK = frozenset({"failed", "cancelled", "reverted"})
COMPLETED = frozenset({"completed"})


@dataclass(frozen=True, slots=True)
class Part:
    """One execution of a point: what its bodies are called before a stroke, and its reactor's name in `everything`."""

    who: str = ""
    reactor: str = "Everything"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way. `ending`: the reactor's input of that name."""

    name: str
    doc: str
    ends: frozenset[str]
    """How each execution may end."""
    ending: str = ""
    is_inline: bool = False
    """Whether the process that dies runs it by `run`, not as a worker."""
    then: str = ""
    """What an operator does after the death: `cancel` (before anybody takes it up), `undo` or `resume` (once it is over)."""
    dies_again: bool = False
    """Whether the worker that takes over dies, too."""
    cast: tuple[Part, ...] = (Part(),)


VARIANTS: dict[str, Variant] = {
    each.name: each
    for each in (
        Variant("fails", "a late failure: everything is undone", ROLLED_BACK, ending="fail"),
        Variant("completes", "nothing fails", COMPLETED),
        Variant("cancelled", "cancelled in the middle, while it runs", ROLLED_BACK, ending="cancel running"),
        Variant("parked", "cancelled in the middle, while it is parked", ROLLED_BACK, ending="cancel parked"),
        Variant(
            "late-cancel", "cancelled after the death, before it is taken up", ROLLED_BACK | COMPLETED, then="cancel"
        ),
        Variant("twice", "who takes over dies as well", COMPLETED, dies_again=True),
        Variant("fails-twice", "a late failure, and who takes over dies as well", ROLLED_BACK, "fail", dies_again=True),
        Variant(
            "rivals",
            "two more in line for the turn and the lock",
            COMPLETED,
            cast=(Part("a"), Part("c", "Rival"), Part("b")),
        ),
        Variant("inline", "run in process, then undone", ROLLED_BACK, is_inline=True, then="undo"),
        Variant("inline-fails", "a late failure in process", ROLLED_BACK, "fail", is_inline=True, then="undo"),
        Variant("inline-resumed", "run in process, then resumed", COMPLETED, is_inline=True, then="resume"),
    )
}
