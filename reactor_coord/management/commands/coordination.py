"""`manage.py coordination`: what is held, who waits, what stepped aside; and releasing one key after asking."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from reactor_coord import operations
from reactor_coord.management.command import OperatorCommand, as_json
from reactor_coord.management.console import Console
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "Show held locks, waiting executions and parks; --release KEY frees one after asking."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--watch", nargs="?", type=float, const=1.0, metavar="SECONDS", help="Again and again, until Ctrl-C."
        )
        parser.add_argument("--release", metavar="KEY", help="Release the hold of this key, after showing who has it.")
        parser.add_argument("--primitive", default="lock", help="Of the key to release.")
        parser.add_argument("--fence", type=int, help="Release it only if this is still its fence.")
        parser.add_argument("--reason", default="", help="Why, for the trace.")
        parser.add_argument(
            "--yes", action="store_true", help="Do not ask; needs --fence, so that it frees what was looked at."
        )
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        if options["release"]:
            self._release(console, options)
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
        holds, waiters, parks = views.holds(), views.waiters(), views.parks()
        notice = holds.notice or waiters.notice
        if as_document:
            console.json(
                {
                    "notice": notice,
                    "holds": as_json(holds.rows),
                    "waiters": as_json(waiters.rows),
                    "parks": as_json(parks.rows),
                }
            )
            return not notice
        now = timezone.now()
        if notice:
            console.line(notice, style="red")
        console.heading(f"Held ({len(holds.rows)}{'+' if holds.truncated else ''})")
        console.table(
            ("key", "primitive", "holder", "state", "since", "lease left", "fence", "count", "waiting"),
            [
                (
                    h.key,
                    h.primitive,
                    h.holder,
                    h.state,
                    _ago(h.since, now),
                    views.span(h.lease_left),
                    h.fence,
                    h.count,
                    h.waiting or "",
                )
                for h in holds.rows
            ],
            empty="not known" if notice else "nothing is held",
        )
        console.heading(f"In line ({len(waiters.rows)}{'+' if waiters.truncated else ''})")
        console.table(
            ("key", "place", "who", "step", "since", "how"),
            [
                (
                    w.key,
                    w.place,
                    f"{w.reactor} {views.short(w.execution or w.owner)}".strip(),
                    w.step,
                    _ago(w.since, now),
                    w.kind,
                )
                for w in waiters.rows
            ],
            empty="not known" if notice else "nobody waits",
        )
        console.heading(f"Stepped aside ({len(parks.rows)}{'+' if parks.truncated else ''})")
        console.table(
            ("execution", "why", "step", "key", "holder", "place", "attempts", "since", "next check"),
            [
                (
                    f"{p.label} {views.short(p.execution)}",
                    p.wait.kind,
                    p.wait.path or p.wait.step,
                    p.wait.key,
                    p.wait.holder.name if p.wait.holder else "",
                    p.wait.place or "",
                    p.wait.attempts,
                    _ago(p.wait.since, now),
                    _in(p.wait.next_check, now),
                )
                for p in parks.rows
            ],
            empty="nothing is parked",
        )
        return not notice

    def _release(self, console: Console, options: dict[str, Any]) -> None:
        key, primitive = options["release"], options["primitive"]
        if options["yes"] and options["fence"] is None:
            raise CommandError("--yes needs --fence: without asking, only the hold that was looked at may be released.")
        hold = views.hold(key, primitive, options["fence"])
        if hold is None:
            raise CommandError(f"Nobody holds the {primitive} {key}. `manage.py coordination` lists what is held.")
        fence = hold.fence if options["fence"] is None else options["fence"]
        if fence != hold.fence:
            raise CommandError(
                f"Owner changed: {key} is held by {hold.holder} now, with fence {hold.fence}, not {fence}. Nothing released."
            )
        if not options["yes"]:
            console.line(
                f"{primitive} {key} is {hold.state} by {hold.holder}, {_ago(hold.since, timezone.now())}, "
                f"fence {hold.fence}, {hold.waiting} waiting."
            )
            console.line("If its body still runs, another may run beside it from now on.")
            if input("Release it? Type the key to confirm: ").strip() != key:
                raise CommandError("Not released.")
        reason = options["reason"]
        if not operations.release_key(
            key, fence=fence, primitive=primitive, reason=reason, actor="manage.py coordination"
        ):
            raise CommandError(f"Owner changed: {key} was given back meanwhile. Nothing released.")
        if options["json"]:
            console.json({"key": key, "primitive": primitive, "fence": fence, "released": True})
        else:
            console.line(f"Released {key}; whoever is next in line has been woken.")


def _ago(moment: Any, now: Any) -> str:
    return f"{views.span((now - moment).total_seconds())} ago" if moment else ""


def _in(moment: Any, now: Any) -> str:
    if moment is None:
        return ""
    left = (moment - now).total_seconds()
    return f"in {views.span(left)}" if left > 0 else "due"
