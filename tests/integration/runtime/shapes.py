"""Reactors whose middle step is locked: once as a step class, once inline, word for word the same declaration.

`before`, `charge`, `behind` record themselves as in `tests.live.reactors`. What an inline step cannot inherit (seconds, what
it fails with) is an input.
"""

from __future__ import annotations

import time
from typing import Any

from reactor_coord import Context, Failure, Input, Reactor, Step, step, with_lock
from reactor_coord.testing import recorder
from tests.live.reactors import BodyFailed, Named, Work

FORMS = ("class", "inline")


def charge_body(context: Any, name: str, key: str, seconds: float, way: str) -> Any:
    """What both forms do: last a while, then end in the way that is asked for."""
    holds = context.holds
    with recorder.current().recording(
        "run charge", name=name, key=key, held=sorted(key for _, key in holds), attempt=context.attempt
    ):
        time.sleep(seconds)
        if way == "raise":
            raise BodyFailed("charge was told to raise")
        if way == "return":
            return Failure("charge was told to return a failure")
        if way == "fail":
            context.fail("charge was told to fail")
    return {"fences": {key: holds[kind, key].fencing_token for kind, key in holds}}


class _Patient(Named):
    """The inputs of both forms."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    other_seconds = Input(float, default=0.0)
    way = Input(str, default="")


@with_lock("{key}", ttl=5, wait=5, rollback_wait=5)
class Charge(Step):
    """The class form."""

    name = Input(str, default="")
    key = Input(str)
    seconds = Input(float, default=0.0)
    way = Input(str, default="")
    undo_seconds = Input(float, default=0.0)

    def run(self) -> Any:
        return charge_body(self.context, self.name, self.key, self.seconds, self.way)

    def compensate(self, error: BaseException) -> None:
        with recorder.current().recording(
            "comp charge", name=self.name, held=sorted(key for _, key in self.context.holds)
        ):
            time.sleep(self.undo_seconds)

    def undo(self, result: Any) -> None:
        with recorder.current().recording(
            "undo charge", name=self.name, held=sorted(key for _, key in self.context.holds)
        ):
            time.sleep(self.undo_seconds)


class ByClass(_Patient):
    """before, charge, behind, with a step class in the middle."""

    before = step(Work, seconds=_Patient.other_seconds)
    charge = step(Charge, after=before)
    behind = step(Work, seconds=_Patient.other_seconds, after=charge)


class ByInline(_Patient):
    """The same with an inline step in the middle."""

    before = step(Work, seconds=_Patient.other_seconds)

    @step(
        name=_Patient.name,
        key=_Patient.key,
        seconds=_Patient.seconds,
        way=_Patient.way,
        undo_seconds=_Patient.undo_seconds,
        after=before,
    )
    @with_lock("{key}", ttl=5, wait=5, rollback_wait=5)
    def charge(name: str, key: str, seconds: float, way: str, context: Context) -> Any:
        """The inline form."""
        return charge_body(context, name, key, seconds, way)

    @charge.compensate
    def _(error: BaseException, name: str, undo_seconds: float, context: Context) -> None:
        with recorder.current().recording("comp charge", name=name, held=sorted(key for _, key in context.holds)):
            time.sleep(undo_seconds)

    @charge.undo
    def _(result: Any, name: str, undo_seconds: float, context: Context) -> None:
        with recorder.current().recording("undo charge", name=name, held=sorted(key for _, key in context.holds)):
            time.sleep(undo_seconds)

    behind = step(Work, seconds=_Patient.other_seconds, after=charge)


REACTORS: dict[str, type[Reactor]] = {"class": ByClass, "inline": ByInline}
