"""A sample of the crash enumeration: on every way through the reactor a worker dies at some of its effects. All: `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from django.db import connections

from tests.live.chaos import report
from tests.live.chaos.lanes import Lane, spread
from tests.live.chaos.variants import VARIANTS

pytestmark = pytest.mark.django_db(transaction=True)

DEATHS = 3
"""Points of each variant."""

KNOWN: Mapping[str, frozenset[str]] = {
    "cancelled": frozenset({"forgotten"}),  # u09
    "parked": frozenset({"forgotten"}),  # u09
    "late-cancel": frozenset({"forgotten"}),  # u09
    "inline": frozenset({"forgotten"}),  # u11
    "inline-fails": frozenset({"forgotten"}),  # u11
    "inline-resumed": frozenset({"begun once", "finished once", "one key"}),  # elements run in process are run again
}
"""Rules that are known to be violated, by variant: each goes with the mending of its row in the list of faults."""


@pytest.fixture(scope="module")
def lane(django_db_setup: None) -> Iterator[Lane]:
    """One lane, on this process's test database."""
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    with Lane(names) as started:
        yield started


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_wherever_a_worker_dies_nothing_is_lost_repeated_forgotten_or_held(lane: Lane, variant: str) -> None:
    clean = lane.play((variant, None))
    assert not clean.violations, report.row(clean)
    assert {kind for kind, _ in clean.effects} == {"row", "commit", "redis", "message", "body"}
    answers = [lane.play((variant, number)) for number in spread(clean.effects, DEATHS)]
    assert any(answer.died_at for answer in answers)
    known = KNOWN.get(variant, frozenset())
    wrong = [answer for answer in answers if any(rule not in known for rule, _ in answer.violations)]
    shown = "\n".join("\n".join([report.row(answer), report.again(answer), *answer.journal]) for answer in wrong)
    assert not wrong, f"{len(wrong)} of {len(answers)} points:\n{shown}"
