"""`manage.py executions`: list them, or show one with its steps and its trace."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q
from django.utils import timezone

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.management.command import OperatorCommand, as_json, find_execution
from reactor_coord.management.console import Console
from reactor_coord.management.drawing import coordination_words
from reactor_coord.operations import views


class Command(OperatorCommand):
    """See the module."""

    help = "List executions, newest first; or show one: its steps, what it waits on, and its trace."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", help="Show this one. The end of its id, as the list shows it, is enough.")
        parser.add_argument(
            "--status", action="append", choices=[each.value for each in ExecutionStatus], help="May be repeated."
        )
        parser.add_argument("--reactor", help="Dotted path, or class name.")
        parser.add_argument("--waiting-key", help="Those that wait for this key.")
        parser.add_argument("--idempotency-key")
        parser.add_argument("--correlation-id", help="Those that ask, or have asked, a question of this name.")
        parser.add_argument("--all", action="store_true", help="Also what others composed or dispatched.")
        parser.add_argument("--parent", help="What this execution composed or dispatched.")
        parser.add_argument("--limit", type=int, default=30)
        parser.add_argument("--json", action="store_true", help="As JSON, for a program.")

    def perform(self, console: Console, **options: Any) -> None:
        if options["id"]:
            self._show_one(console, options["id"], as_document=options["json"])
        else:
            self._show_list(console, options)

    def _show_list(self, console: Console, options: dict[str, Any]) -> None:
        parent = find_execution(options["parent"]) if options["parent"] else None
        rows = views.listing(started_only=not options["all"] and parent is None)
        if parent is not None:
            rows = rows.filter(parent_id=parent.pk)
        if options["status"]:
            rows = rows.filter(status__in=options["status"])
        if options["reactor"]:
            rows = rows.filter(Q(reactor=options["reactor"]) | Q(label=options["reactor"]))
        if options["waiting_key"]:
            rows = rows.filter(waiting_key=options["waiting_key"])
        if options["idempotency_key"]:
            rows = rows.filter(idempotency_key=options["idempotency_key"])
        if options["correlation_id"]:
            rows = rows.filter(pk__in=views.asking_under(options["correlation_id"]))
        limit = max(options["limit"], 1)
        found = [views.summary(row) for row in rows[: limit + 1]]
        if options["json"]:
            console.json(as_json(found[:limit]))
            return
        now = timezone.now()
        console.table(
            ("id", "reactor", "status", "waits on", "age", "took"),
            [
                (
                    each.short_id,
                    each.label,
                    each.status_label,
                    _waits(each.waits_on),
                    views.span((now - each.created_at).total_seconds()) if each.created_at else "",
                    views.span(each.duration) if each.duration is not None else "",
                )
                for each in found[:limit]
            ],
            empty="No execution matches.",
        )
        if len(found) > limit:
            console.line(f"More than {limit}: narrow it, or raise --limit.", style="dim")

    def _show_one(self, console: Console, name: str, *, as_document: bool) -> None:
        detail = views.detail(find_execution(name), trace_limit=2000)
        if as_document:
            console.json(as_json(detail))
            return
        summary = detail.summary
        console.line(f"{summary.label}  {summary.id}  {summary.status_label}", style="bold")
        console.line(detail.explain)
        if detail.notice:
            console.line(detail.notice, style="yellow")
        if detail.definition_missing:
            console.line(f"Definition missing: this code has no reactor {summary.reactor}.", style="yellow")
        if summary.parent:
            console.line(f"part of {summary.parent}, at step {summary.parent_step}")
        for question in detail.questions:
            until = f", until {question.until.isoformat()}" if question.until else ""
            console.line(
                f"asks at {question.step} for {question.correlation_id}{until}: {question.shape or 'any JSON'}"
            )
        console.heading("Steps")
        _show_steps(console, detail.steps, "")
        if detail.coordination:
            console.line("for the whole reactor: " + "; ".join(map(_coordination, detail.coordination)))
        for failure in detail.rollback_failures:
            console.line(
                f"left undone: {failure.step} {failure.kind} {failure.key} {failure.reason}: {failure.message}",
                style="red",
            )
        console.heading("Trace")
        console.table(
            ("at", "event", "step", "key", "details"),
            [
                (
                    f"{event.offset:+.3f} s",
                    event.kind,
                    f"{event.reactor}.{event.step}".rstrip(".") if event.nested else event.step,
                    f"{event.primitive} {event.key}" if event.key else "",
                    event.words,
                )
                for event in detail.trace
            ],
            empty="nothing has happened yet",
        )
        if detail.trace_total > len(detail.trace):
            console.line(f"the last {len(detail.trace)} of {detail.trace_total} events", style="dim")


def _show_steps(console: Console, steps: tuple[views.StepView, ...], indent: str) -> None:
    rows: list[tuple[Any, ...]] = []
    _collect(rows, steps, indent)
    console.table(("step", "status", "attempts", "parked", "took", "coordination", "remark"), rows, empty="no steps")


def _collect(rows: list[tuple[Any, ...]], steps: tuple[views.StepView, ...], indent: str) -> None:
    for step in steps:
        remark = f"{step.error.type}: {step.error.message}" if step.error else step.reason
        rows.append(
            (
                f"{indent}{step.name}",
                step.status,
                step.attempts or "",
                step.contention_attempts or "",
                views.span(step.duration) if step.duration is not None else "",
                "; ".join(map(_coordination, step.coordination)),
                remark,
            )
        )
        if step.units is not None:
            rows += [(f"{indent}  {words}", "", "", "", "", "", "") for words in _units(step.units)]
        for branch in step.branches:
            _collect(rows, branch.steps, f"{indent}  ")
        if step.branches_total > len(step.branches):
            rows.append((f"{indent}  … {step.branches_total - len(step.branches)} more", "", "", "", "", "", ""))


def _units(units: views.UnitsView) -> list[str]:
    """What a step handed off: a fan-out in numbers, and each unit that is worth a look."""
    counted = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in units.counts)
    words = [f"{units.done} of {units.total} over: {counted}"] if units.is_fan_out else []
    for each in units.shown:
        number = f"[{each.element_index}]" if each.element_index is not None else ""
        words.append(f"{each.label}{number} {views.short(each.id)} {each.status_label}")
    return words


def _coordination(each: views.CoordinationView) -> str:
    by = f" by {each.holder.name}" if each.holder and each.state == "waiting" else ""
    return f"{coordination_words(each)} {each.state}{by}"


def _waits(wait: views.WaitView | None) -> str:
    if wait is None:
        return ""
    return f"{wait.primitive} {wait.key}" if wait.key else wait.kind
