"""What the second story counts by, and that each sabotage breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management.base import CommandError

from demo_project.demonstration import in_order, sabotage, slotted
from demo_project.demonstration.claims import ClaimBroken
from demo_project.payments import journal
from demo_project.shipping import books, courier


def _span(begin: float, end: float) -> journal.Span:
    return journal.Span("pick", "x", 0, 1, begin, end)


def test_how_many_were_inside_and_for_how_long() -> None:
    spans = [_span(0, 2), _span(1, 3), _span(3, 4), _span(10, 11)]
    assert slotted.seconds_by_crowd(spans) == {0: 0.0, 1: 4.0, 2: 1.0}


def test_who_leaves_as_another_enters_is_not_beside_it() -> None:
    assert max(slotted.seconds_by_crowd([_span(0, 1), _span(1, 2)])) == 1


def test_too_many_pickers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [_span(n, n + 1) for n in range(4)]
    slotted.check(sabotage.picks(spans, 3), expected=4)
    monkeypatch.setenv("DEMO_SABOTAGE", "slots")
    with pytest.raises(ClaimBroken, match="4 pickers"):
        slotted.check(sabotage.picks(spans, 3), expected=4)


def test_the_busiest_second_slides() -> None:
    seen = [courier.Visit(n, at, True) for n, at in enumerate((0.0, 0.9, 1.1, 1.8, 3.0))]
    assert courier.busiest_second(seen) == 3


@pytest.mark.django_db
@pytest.mark.parametrize("wish,said", [("gap", "the numbers of the book are"), ("order", "not in the order")])
def test_a_book_that_is_not_in_order_is_noticed(monkeypatch: pytest.MonkeyPatch, wish: str, said: str) -> None:
    sent = ["one", "two", "three", "four"]
    for what in sent:
        books.append("day", what)
    sabotage.book("day")
    in_order.check("day", sent)
    monkeypatch.setenv("DEMO_SABOTAGE", wish)
    sabotage.book("day")
    with pytest.raises(ClaimBroken, match=said):
        in_order.check("day", sent)


def test_a_crowd_is_put_into_the_couriers_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "courier.jsonl"
    monkeypatch.setenv("DEMO_COURIER", str(path))
    assert courier._admit(1)
    sabotage.courier_book(path, 1)
    assert len(courier.visits(path)) == 1
    monkeypatch.setenv("DEMO_SABOTAGE", "quota")
    sabotage.courier_book(path, 1)
    assert courier.busiest_second(courier.visits(path)) == 21


def test_an_unknown_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_SABOTAGE", "everything")
    with pytest.raises(CommandError, match="missing, twice"):
        sabotage.check()
