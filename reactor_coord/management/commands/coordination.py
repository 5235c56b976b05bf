"""`manage.py coordination`: all five primitives as they are now and what stepped aside; the acts are in `coordinating`."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from reactor_coord.management import coordinating
from reactor_coord.management.command import OperatorCommand, as_json
from reactor_coord.management.console import Console
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "Show holds, lines, limits, periods, ordered lines and parks; or act on one of them after asking."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--watch", nargs="?", type=float, const=1.0, metavar="SECONDS", help="Again and again, until Ctrl-C."
        )
        coordinating.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        act = coordinating.asked_for(options)
        if act is not None:
            coordinating.perform(act, console, options)
            return
        if options["watch"] is None:
            if not self._show(console, as_document=options["json"]):
                raise CommandError("Redis cannot be reached: see above.")
            return
        while True:
            console.clear()
            self._show(console, as_document=options["json"])
            time.sleep(max(options["watch"], 0.2))

    def _show(self, console: Console, *, as_document: bool) -> bool:
        shown: dict[str, views.Live[Any]] = {
            "holds": views.holds(),
            "waiters": views.waiters(),
            "lines": views.lines(),
            "limits": views.limits(),
            "periods": views.buckets(),
            "parks": views.parks(),
        }
        notice = next((each.notice for each in shown.values() if each.notice), "")
        if as_document:
            console.json({"notice": notice, **{name: as_json(found.rows) for name, found in shown.items()}})
            return not notice
        now = timezone.now()
        if notice:
            console.line(notice, style="red")
        _show_holds(console, shown["holds"], now, notice)
        _show_waiters(console, shown["waiters"], now, notice)
        _show_lines(console, shown["lines"], now)
        _show_limits(console, shown["limits"], now)
        _show_periods(console, shown["periods"], now)
        _show_parks(console, shown["parks"], now)
        return not notice


def _heading(console: Console, words: str, found: views.Live[Any]) -> None:
    console.heading(f"{words} ({len(found.rows)}{'+' if found.truncated else ''})")


def _show_holds(console: Console, found: views.Live[views.HoldRow], now: dt.datetime, notice: str) -> None:
    _heading(console, "Held", found)
    console.table(
        ("key", "primitive", "holder", "state", "since", "lease left", "fence", "count", "slots", "waiting"),
        [
            (
                each.key,
                each.primitive,
                each.holder,
                each.state,
                _ago(each.since, now),
                views.span(each.lease_left),
                each.fence,
                each.count,
                f"{each.slots_used} of {each.limit or '?'}" if each.slots_used is not None else "",
                each.waiting or "",
            )
            for each in found.rows
        ],
        empty="not known" if notice else "nothing is held",
    )


def _show_waiters(console: Console, found: views.Live[views.WaiterRow], now: dt.datetime, notice: str) -> None:
    _heading(console, "In line", found)
    console.table(
        ("key", "primitive", "place", "priority", "who", "step", "since", "how", "ticket"),
        [
            (
                each.key,
                each.primitive,
                each.place,
                each.priority or "",
                f"{each.reactor} {views.short(each.execution or each.owner)}".strip(),
                each.step,
                _ago(each.since, now),
                each.kind,
                each.ticket,
            )
            for each in found.rows
        ],
        empty="not known" if notice else "nobody waits",
    )


def _show_lines(console: Console, found: views.Live[views.LineRow], now: dt.datetime) -> None:
    if not found.rows:
        return
    _heading(console, "Ordered lines", found)
    for line in found.rows:
        failed = f", first failed {line.first_failed}" if line.first_failed else ""
        failed += f", healed {_in(line.failed_until, now)}" if line.failed_until else ""
        console.line(
            f"{line.key}: next {line.next}, last completed {line.last_completed}, {line.waiting} in flight{failed} "
            f"(epoch {line.epoch})"
        )
        console.table(
            ("position", "who", "state", "passed over"),
            [
                (
                    each.position,
                    each.name,
                    each.state,
                    _in(each.passed_over, now) if each.position == line.next else "",
                )
                for each in line.in_flight
            ],
        )


def _show_limits(console: Console, found: views.Live[views.LimitRow], now: dt.datetime) -> None:
    if not found.rows:
        return
    _heading(console, "Rate limits", found)
    console.table(
        ("key", "windows", "planned", "next"),
        [
            (
                each.key,
                ", ".join(f"{one.count} of {one.limit} in {views.span(one.seconds)}" for one in each.windows),
                each.planned_total or "",
                f"{views.short(each.planned[0].execution or each.planned[0].who)} {_in(each.planned[0].due, now)}"
                if each.planned
                else "",
            )
            for each in found.rows
        ],
    )


def _show_periods(console: Console, found: views.Live[views.BucketRow], now: dt.datetime) -> None:
    if not found.rows:
        return
    _heading(console, "Periods", found)
    console.table(
        ("key", "bucket", "run by", "marked", "until"),
        [
            (each.key, each.bucket, views.short(each.by), _ago(each.since, now), _in(each.until, now))
            for each in found.rows
        ],
    )


def _show_parks(console: Console, found: views.Live[views.ParkRow], now: dt.datetime) -> None:
    _heading(console, "Stepped aside", found)
    console.table(
        ("execution", "why", "step", "key", "holder", "place", "attempts", "since", "next check"),
        [
            (
                f"{each.label} {views.short(each.execution)}",
                each.wait.kind,
                each.wait.path or each.wait.step,
                each.wait.key,
                each.wait.holder.name if each.wait.holder else "",
                each.wait.place or "",
                each.wait.attempts,
                _ago(each.wait.since, now),
                _in(each.wait.next_check, now),
            )
            for each in found.rows
        ],
        empty="nothing is parked",
    )


def _ago(moment: Any, now: Any) -> str:
    return f"{views.span((now - moment).total_seconds())} ago" if moment else ""


def _in(moment: Any, now: Any) -> str:
    if moment is None:
        return ""
    left = (moment - now).total_seconds()
    return f"in {views.span(left)}" if left > 0 else "due"
