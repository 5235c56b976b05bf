"""Ordered lines on a real server: positions by arrival, a cursor, a poison pill with signs of life."""

from __future__ import annotations

import time

import pytest

from reactor_coord.coordination import NotYet, OrderedLines, Requester, Turn
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keeper import Keeper
from reactor_coord.coordination.keys import Names


@pytest.fixture
def lines(reactor_prefix: str) -> OrderedLines:
    return OrderedLines(Connection("default"), Names(reactor_prefix), Keeper())


def enter(lines: OrderedLines, who: str, poison: float = 60.0, claim: str = "") -> Turn | NotYet:
    requester = Requester(owner=who, claim=claim or who, wake=who, execution=who)
    return lines.enter("k", who, requester, poison_timeout=poison, ttl=3600)


def turn(lines: OrderedLines, who: str, poison: float = 60.0) -> Turn:
    answer = enter(lines, who, poison)
    assert isinstance(answer, Turn)
    return answer


def test_positions_are_given_on_arrival_and_the_next_is_woken(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    waiting = enter(lines, "b")
    assert isinstance(waiting, NotYet)
    assert (waiting.position, waiting.ahead, waiting.head_execution) == (2, 1, "a")
    assert isinstance(enter(lines, "c"), NotYet)
    assert lines.complete(first.taken, failed=False) == ("b",)
    assert turn(lines, "b").position == 2


def test_order_05_who_comes_again_has_the_same_position(lines: OrderedLines) -> None:
    turn(lines, "a")
    enter(lines, "b")
    enter(lines, "c")
    again = enter(lines, "b")
    assert isinstance(again, NotYet)
    assert again.position == 2


def test_a_position_kept_over_a_park_is_adopted(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    lines.pause(first.taken, 1)
    assert isinstance(enter(lines, "b"), NotYet)
    again = turn(lines, "a")
    assert (again.position, again.adopted) == (1, True)


def test_the_first_failed_position_is_told_until_the_line_is_drained(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    enter(lines, "b")
    lines.complete(first.taken, failed=True)
    second = turn(lines, "b")
    assert second.failed == 1
    lines.complete(second.taken, failed=False)
    assert turn(lines, "c").failed == 0


def test_order_06_a_position_that_never_comes_is_passed_a_living_one_is_not(lines: OrderedLines) -> None:
    first = turn(lines, "a", poison=0.3)
    lines.watch(first.taken, lambda key: None)
    enter(lines, "b", poison=0.3)
    enter(lines, "c", poison=0.3)
    time.sleep(0.6)
    assert lines.tend() == ()
    assert isinstance(enter(lines, "b", poison=0.3), NotYet)
    assert lines.complete(first.taken, failed=False) == ("b",)
    time.sleep(0.4)
    assert lines.tend() == ("c",)
    assert turn(lines, "c").position == 3


def test_order_09_a_position_given_back_is_closed_over(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    enter(lines, "b")
    enter(lines, "c")
    assert lines.leave("k", "b", ttl=3600) == ()
    assert lines.complete(first.taken, failed=False) == ("c",)


def test_order_10_d100_a_straggler_of_a_drained_line_does_not_move_the_new_one(lines: OrderedLines) -> None:
    old = turn(lines, "a", poison=0.1)
    time.sleep(0.2)
    fresh = turn(lines, "b")
    assert fresh.epoch != old.epoch
    assert isinstance(enter(lines, "c"), NotYet)
    assert lines.complete(old.taken, failed=True) == ()
    assert lines.complete(fresh.taken, failed=False) == ("c",)
    assert turn(lines, "c").failed == 0


def test_a_second_delivery_under_another_claim_does_not_walk_in(lines: OrderedLines) -> None:
    turn(lines, "a", poison=0.3)
    assert isinstance(enter(lines, "a", poison=0.3, claim="other"), NotYet)
    time.sleep(0.4)
    assert isinstance(enter(lines, "a", poison=0.3, claim="other"), Turn)


def test_order_07_inspection(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    enter(lines, "b")
    lines.complete(first.taken, failed=True)
    second = turn(lines, "b")
    view = lines.view("k")
    assert (view.next, view.last_completed, view.first_failed) == (2, 1, 1)
    assert [(each.position, each.execution, each.state) for each in view.in_flight] == [(2, "b", "running")]
    lines.complete(second.taken, failed=False)
    drained = lines.view("k")
    assert drained.is_drained
    assert (drained.next, drained.last_completed, drained.first_failed, drained.in_flight) == (0, 0, 0, ())


def test_an_operator_skips_a_position_or_resets_the_line(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    enter(lines, "b")
    assert lines.skip("k", 1) == "b"
    assert lines.complete(first.taken, failed=False) == ()
    assert turn(lines, "b").position == 2
    lines.reset("k")
    assert turn(lines, "z").position == 1


def test_an_operator_acts_only_on_the_line_that_was_looked_at(lines: OrderedLines) -> None:
    turn(lines, "a")
    enter(lines, "b")
    (view,) = lines.survey()
    assert (view.key, view.next, view.waiting, [each.execution for each in view.in_flight]) == ("k", 1, 2, ["a", "b"])
    assert lines.skip("k", 1, epoch=view.epoch - 1) is None
    assert lines.skip("k", 9, epoch=view.epoch) is None
    assert not lines.reset("k", epoch=view.epoch - 1)
    assert lines.skip("k", 1, epoch=view.epoch) == "b"
    assert lines.reset("k", epoch=view.epoch) and lines.survey() == []


def test_who_was_skipped_and_came_again_keeps_its_new_place(lines: OrderedLines) -> None:
    first = turn(lines, "a")
    enter(lines, "b")
    assert lines.skip("k", 2) == ""
    again = enter(lines, "b")
    assert isinstance(again, NotYet) and again.position == 3
    assert lines.complete(first.taken, failed=False) == ("b",)
    assert turn(lines, "b").position == 3


def test_a_survey_of_a_long_line_reads_its_first_positions(lines: OrderedLines) -> None:
    for number in range(8):
        enter(lines, f"w{number}")
    (view,) = lines.survey(shown=3)
    assert [each.position for each in view.in_flight] == [1, 2, 3] and (view.waiting, view.last_given) == (8, 8)
