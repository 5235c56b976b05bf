"""What an operator may do to coordination: for each act, what names its object, how that is looked up, and what is said first.

One table for the pages that ask and for the buttons that lead there; doing it is `operations`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from reactor_coord import operations
from reactor_coord.operations import views

from .forms import Exact, ReasonForm


@dataclass(frozen=True, slots=True)
class Shown:
    """What the act is about to change, as it is now. `facts` are label and value; `execution` is the one concerned."""

    facts: tuple[tuple[str, Any], ...]
    execution: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """One act. `fields` name its object, with the type of each; `look` answers None when that is not so any more."""

    title: str
    button: str
    consequence: str
    done: str
    gone: str
    fields: Mapping[str, type[forms.Field]]
    look: Callable[..., Shown | None]
    do: Callable[..., bool]

    def form(self, data: Any = None, **options: Any) -> ReasonForm:
        """The reason, and what names the object, hidden."""
        hidden = {name: kind(widget=forms.HiddenInput) for name, kind in self.fields.items()}
        return type("ActForm", (ReasonForm,), hidden)(data, **options)  # type: ignore[no-any-return]

    def named(self, asked: Mapping[str, str]) -> dict[str, Any] | None:
        """What a request names, in its types; None when something is missing or malformed."""
        try:
            return {name: kind().clean(asked.get(name)) for name, kind in self.fields.items()}
        except forms.ValidationError:
            return None


def _hold(key: str, primitive: str, fence: int) -> Shown | None:
    found = views.hold(key, primitive, fence)
    if found is None or found.fence != fence:
        return None
    slots = (("Slots used", f"{found.slots_used} of {found.limit or '?'}"),) if found.slots_used is not None else ()
    facts = (
        ("State", found.state),
        ("Since", found.since),
        ("Lease left", views.span(found.lease_left)),
        ("Fence", found.fence),
        ("Waiting", found.waiting),
        *slots,
    )
    return Shown(facts, found.execution, found.holder)


def _waiter(key: str, primitive: str, ticket: int) -> Shown | None:
    found = views.waiter(key, primitive, ticket)
    if found is None:
        return None
    facts = (("Place", found.place), ("Priority", found.priority), ("Since", found.since), ("How", found.kind))
    return Shown(facts, found.execution, found.name)


def _position(key: str, position: int, epoch: int) -> Shown | None:
    line = views.line(key)
    if line is None or line.epoch != epoch:
        return None
    found = next((each for each in line.in_flight if each.position == position), None)
    if found is None:
        return None
    facts = (
        ("Position", found.position),
        ("State", found.state),
        ("Next in line", line.next),
        ("In line", line.waiting),
    )
    return Shown(facts, found.execution, found.name)


def _line(key: str, epoch: int) -> Shown | None:
    line = views.line(key)
    if line is None or line.epoch != epoch:
        return None
    head = line.in_flight[0] if line.in_flight else None
    facts = (
        ("In line", line.waiting),
        ("Next", line.next),
        ("Last completed", line.last_completed),
        ("First failed", line.first_failed or "none"),
        ("Failed until", line.failed_until or "it is drained"),
    )
    return Shown(facts, head.execution if head else line.failed_by, head.name if head else views.short(line.failed_by))


def _bucket(key: str, bucket: str, by: str) -> Shown | None:
    found = views.bucket(key, bucket)
    if found is None or found.by != by:
        return None
    return Shown((("Bucket", found.bucket), ("Marked", found.since), ("Until", found.until)), found.by, views.short(by))


def _slot(key: str, who: str, at: float) -> Shown | None:
    found = views.slot(key, who)
    if found is None or abs(found.at - at) > 0.0005:
        return None
    return Shown((("Its time", found.due), ("Step", found.step)), found.execution, views.short(found.execution or who))


KEY, TEXT, NUMBER, TIME = Exact, Exact, forms.IntegerField, forms.FloatField

ACTS: dict[str, Act] = {
    "release": Act(
        title="Release the {primitive} {key}",
        button="Release it",
        consequence=(
            "The holder is not stopped. If its body still runs, another may run beside it from now on; it ends with lock "
            "lost if it still runs at its next renewal, unless it was declared to only warn. Nothing is released if somebody "
            "else holds the key by the time you press the button."
        ),
        done="{key} was released; whoever is next in line has been woken.",
        gone="Owner changed: the hold of {key} that was shown is over. Nothing released.",
        fields={"key": KEY, "primitive": TEXT, "fence": NUMBER},
        look=_hold,
        do=operations.release_key,
    ),
    "drop": Act(
        title="Drop a waiter from the line of {primitive} {key}",
        button="Drop it",
        consequence=(
            "It loses its place, and a reservation that was on its way goes to the next. Its execution is not ended: it looks "
            "again by itself when it was due to, and if it still wants the key it joins anew, at the end. To end it, cancel it."
        ),
        done="It was dropped from the line of {key}; it looks again by itself when it was due to.",
        gone="The line of {key} changed: that waiter does not stand there any more. Nobody was dropped.",
        fields={"key": KEY, "primitive": TEXT, "ticket": NUMBER},
        look=_waiter,
        do=operations.drop_waiter,
    ),
    "skip": Act(
        title="Skip position {position} of {key}",
        button="Skip it",
        consequence=(
            "The line passes over this position, and the next one is woken if it was its turn. Who had it is not ended: if it "
            "still waits it arrives anew, at the end; if it runs it has lost its turn, and another may run beside it."
        ),
        done="Position {position} of {key} was skipped; whoever is next has been woken.",
        gone="The line {key} moved: position {position} is not waiting there any more. Nothing was skipped.",
        fields={"key": KEY, "position": NUMBER, "epoch": NUMBER},
        look=_position,
        do=operations.skip_position,
    ),
    "reset": Act(
        title="Reset the ordered line {key}",
        button="Reset the line",
        consequence=(
            "The line begins afresh at position 1 and forgets a failed position. Whoever waits in it is woken, in order, and "
            "arrives anew; who runs has lost its turn, and another may run beside it."
        ),
        done="The line {key} begins afresh; whoever waited in it has been woken.",
        gone="The line {key} was drained or reset meanwhile. Nothing was reset.",
        fields={"key": KEY, "epoch": NUMBER},
        look=_line,
        do=operations.reset_line,
    ),
    "clear": Act(
        title="Free the bucket {bucket} of {key}",
        button="Free it",
        consequence="Whoever comes next in this bucket runs once more, as if nobody had. What ran is not undone.",
        done="{bucket} of {key} is free again.",
        gone="The bucket {bucket} of {key} is free already, or was marked by another. Nothing was freed.",
        fields={"key": KEY, "bucket": TEXT, "by": TEXT},
        look=_bucket,
        do=operations.clear_period,
    ),
    "forget": Act(
        title="Forget a planned slot of {key}",
        button="Forget it",
        consequence=(
            "Its place in the window is free for whoever asks next. Its execution is not ended: it looks at the time it was "
            "given and asks anew, and may have to wait again."
        ),
        done="The slot of {key} was given back.",
        gone="The slot of {key} was used or moved meanwhile. Nothing was given back.",
        fields={"key": KEY, "who": TEXT, "at": TIME},
        look=_slot,
        do=operations.forget_slot,
    ),
}
