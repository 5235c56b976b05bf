"""Sixty starts against a courier that takes few a second: by the courier's own book nobody came too often, or in vain."""

from __future__ import annotations

from django.db.models import Sum

from demo_project import place
from demo_project.demonstration import rush, sabotage
from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage
from demo_project.shipping import courier
from reactor_coord import conf
from reactor_coord.models import StepRun

PROMISE = f"{rush.ORDERS} orders and {rush.RETURNS} returns share a courier's quota: planned, never exceeded"


def show(stage: Stage) -> None:
    """Read the courier's book. Raises ClaimBroken."""
    seen = rush.of(stage)
    sabotage.courier_book(place.courier_book(), seen.orders[0])
    visits = [visit for visit in courier.visits(place.courier_book()) if visit.order in set(seen.orders)]
    turned_away = [visit for visit in visits if not visit.taken]
    busiest, quota = courier.busiest_second(visits), courier.QUOTA_PER_SECOND
    claim(not turned_away, f"the courier turned {len(turned_away)} away, the first of them order {turned_away[:1]}")
    claim(busiest <= quota, f"the courier met {busiest} in one second; its quota is {quota}")
    claim(len(visits) == len(seen.orders), f"the courier met {len(visits)} instead of {len(seen.orders)}")

    limit = int(conf.settings().RATE_LIMITS["courier"]["limits"]["second"])  # type: ignore[index]
    span = visits[-1].at - visits[0].at
    share = (len(visits) - limit) / (limit * span)
    stage.screen.say(f"the courier's own book: {len(visits)} came, none was turned away")
    stage.screen.say(f"at most {busiest} in any second: the courier takes {quota}, the settings ask for {limit}")
    parks = StepRun.objects.filter(execution__in=seen.executions, step="parcel").aggregate(
        total=Sum("contention_attempts")
    )["total"]
    stage.screen.say(
        f"{len(visits)} in {span:.1f} s: {share:.0%} of the limit used; {parks / len(visits):.2f} parks for each"
    )
