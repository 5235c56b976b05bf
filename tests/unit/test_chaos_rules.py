"""The rules of the crash enumeration see what they are for: journals made by hand, each with one thing wrong."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord.testing.effects import SIDES
from tests.live.chaos.invariants import BODIES as BODIES_OF
from tests.live.chaos.invariants import ORDERS, violations
from tests.live.chaos.journal import Line
from tests.live.chaos.lanes import spread
from tests.live.chaos.stage import Ended, Played, second_point
from tests.live.chaos.variants import VARIANTS, Part

BODIES, ORDER = BODIES_OF["Everything"], ORDERS["Everything"]


class Journal:
    """Lines in order. The victim's come first; `die` ends it, what follows is another worker's."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.role, self.effects = "victim", 0

    def add(self, what: str, name: str, **notes: Any) -> None:
        self.lines.append(Line(float(len(self.lines)), 1, self.role, what, name, notes))

    def effect(self, kind: str, name: str) -> None:
        if self.role == "victim":
            self.effects += 1
            self.add("effect", name, kind=kind, number=self.effects)

    def body(
        self, name: str, *, what: str = "run", token: str = "t", ends: bool = True, is_written: bool = True
    ) -> None:
        self.add(what, name, side="began", token=token, key=f"key of {name}")
        if ends:
            self.add(what, name, side="ended", token=token)
            self.effect("body", SIDES["body.after"])
        if ends and is_written:
            self.effect("commit", "the transaction")

    def die(self) -> None:
        self.effect("redis", "where it dies")
        self.role = "worker"

    def played(self, status: str, variant: str, **more: Any) -> Played:
        ended = Ended(Part(), status, more.pop("failure", None), more.pop("postings", int(status == "completed")))
        return Played(VARIANTS[variant], self.effects, self.lines, ended=[ended], **more)


def completed() -> Journal:
    """All bodies, once each, the victim's up to `post`."""
    journal = Journal()
    for name in BODIES:
        journal.body(name)
        if name == "post":
            journal.die()
    return journal


def rolled_back(*, without: str = "") -> Journal:
    """All bodies once each and undone, newest first; one of them is left out of the undoing."""
    journal = Journal()
    for name in BODIES:
        journal.body(name)
    journal.die()
    for name in reversed([*BODIES[len(ORDER) :], *ORDER]):
        if name != without:
            journal.body(name, what="undo")
    return journal


FAILED: dict[str, Any] = {"error_type": "EndFailed", "step": "last", "rollback_failures": []}


def rules(played: Played) -> set[str]:
    return {violation.rule for violation in violations(played)}


def test_nothing_is_wrong_with_a_run_that_is_taken_up_or_undone() -> None:
    assert rules(completed().played("completed", "completes")) == set()
    assert rules(rolled_back().played("failed", "fails", failure=FAILED)) == set()
    assert rules(rolled_back().played("cancelled", "late-cancel")) == set()
    assert rules(Journal().played("", "fails")) == set()


def test_a_body_may_run_again_only_when_its_worker_died_in_it() -> None:
    journal = Journal()
    journal.body("opening", is_written=False)
    journal.die()
    for name in BODIES:
        journal.body(name)
    assert rules(journal.played("completed", "completes")) == set()
    journal.body("opening")
    assert rules(journal.played("completed", "completes")) == {"finished once", "begun once"}
    again = completed()
    again.body("reserve")
    assert rules(again.played("completed", "completes")) == {"finished once", "begun once"}


def test_a_body_that_began_is_cleaned_up_or_listed() -> None:
    assert rules(rolled_back(without="charge").played("failed", "fails", failure=FAILED)) == {"forgotten"}
    listed = {**FAILED, "rollback_failures": [{"step": "receipt"}]}
    assert rules(rolled_back(without="receipt").played("failed", "fails", failure=listed)) == set()
    needless = {**FAILED, "rollback_failures": [{"step": "charge"}]}
    assert rules(rolled_back(without="charge").played("failed", "fails", failure=needless)) == {"needlessly listed"}


def test_a_cleanup_before_the_last_beginning_counts_for_nothing() -> None:
    journal = Journal()
    journal.body("opening")
    journal.body("opening", what="undo")
    journal.die()
    journal.body("opening", ends=False)
    assert "forgotten" in rules(journal.played("cancelled", "cancelled"))


@pytest.mark.parametrize(
    "wrong, rule",
    [
        ({"status": "failed", "failure": {"error_type": "WorkerLost"}}, "status"),
        ({"status": "parked"}, "status"),
        ({"unfinished": ["Everything is parked"]}, "unfinished"),
        ({"postings": 0}, "ledger"),
        ({"held": ["{lock:order}:hold"]}, "held"),
    ],
)
def test_what_is_left_is_held_against_the_end(wrong: dict[str, Any], rule: str) -> None:
    journal = completed()
    assert rule in rules(journal.played(**{"status": "completed", "variant": "completes", **wrong}))


def test_an_undo_meets_the_value_of_the_body_that_counts() -> None:
    journal = rolled_back()
    found = next(line for line in journal.lines if line.what == "undo" and line.side == "began")
    found.notes["token"] = "another"  # type: ignore[index]
    assert rules(journal.played("failed", "fails", failure=FAILED)) == {"undo meets its value"}


def test_cleanups_go_from_the_newest_to_the_oldest_and_happen_once() -> None:
    journal = rolled_back(without="last")
    journal.body("last", what="comp")
    assert rules(journal.played("failed", "fails", failure=FAILED)) == {"newest first"}
    journal = rolled_back()
    journal.body("opening", what="undo")
    assert rules(journal.played("failed", "fails", failure=FAILED)) == {"cleaned once"}


def test_each_of_two_that_die_may_have_their_body_repeated() -> None:
    journal = Journal()
    journal.body("opening", is_written=False)
    journal.die()
    journal.role = "second"
    journal.body("opening", is_written=False)
    for number in range(1, second_point(journal.effects) + 1):
        journal.add("effect", "whatever", kind="redis", number=number)
    journal.role = "worker"
    for name in BODIES:
        journal.body(name)
    assert rules(journal.played("completed", "twice")) == set()
    journal.body("opening")
    assert rules(journal.played("completed", "twice")) == {"finished once", "begun once"}


def test_bodies_are_counted_by_execution() -> None:
    journal = Journal()
    for who in "acb":
        for name in BODIES_OF["Rival" if who == "c" else "Everything"]:
            journal.body(f"{who}/{name}")
    journal.die()
    parts = VARIANTS["rivals"].cast
    ended = [Ended(part, "completed", None, int(part.reactor == "Everything")) for part in parts]
    played = Played(VARIANTS["rivals"], journal.effects, journal.lines, ended=ended)
    assert rules(played) == set()
    journal.body("c/contended")
    assert rules(played) == {"finished once", "begun once"}


def test_what_never_began_is_not_undone() -> None:
    journal = Journal()
    journal.body("opening")
    journal.die()
    journal.body("reserve", what="comp")  # it may have begun, for all that is known
    journal.body("opening", what="undo")
    assert rules(journal.played("cancelled", "cancelled")) == set()
    journal.body("post", what="undo")
    assert "cleaned in vain" in rules(journal.played("cancelled", "cancelled"))


def test_a_row_that_was_written_is_not_gone() -> None:
    journal = Journal()
    journal.effect("commit", "INSERT execution")
    journal.die()
    assert rules(journal.played("", "fails")) == {"gone"}


def test_a_sample_goes_from_the_first_effects_to_the_last_and_leaves_rows_to_their_commit() -> None:
    effects = [["row", ""], ["commit", ""], ["redis", ""], ["body", ""], ["message", ""], ["row", ""]]
    assert spread(effects, 4) == [2, 3, 4, 5]
    assert spread(effects, 2) == [3, 5]
