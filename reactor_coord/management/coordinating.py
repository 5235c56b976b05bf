"""The acts of `manage.py coordination`: what names an object on the command line, how it is shown, and that it is asked for.

Without `--yes` a person is shown what it is about and asked; with it, the command line must name what was looked at, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from reactor_coord import operations
from reactor_coord.errors import CoordinationUnavailable
from reactor_coord.management.console import Console
from reactor_coord.operations import views

ACTOR = "manage.py coordination"
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Found:
    """What an act is about, as it is now: the words for a person, and what names it."""

    words: str
    named: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Act:
    """One act. `options` are those that name its object beside the key; with `--yes` all `exact` ones are needed."""

    help: str
    exact: tuple[str, ...]
    find: Callable[[str, Mapping[str, Any]], Iterator[Found]]
    do: Callable[..., bool]
    nothing: str
    changed: str
    done: str
    warning: str


def _holds(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    primitive = options["primitive"]
    hold = views.hold(key, primitive, options["fence"])
    if hold is not None:
        slots = f", slot {hold.slots_used} of {hold.limit or '?'} in use" if hold.slots_used is not None else ""
        yield Found(
            f"{primitive} {key} is {hold.state} by {hold.holder}, {_ago(hold.since)}, fence {hold.fence}, "
            f"{hold.waiting} waiting{slots}",
            {"primitive": primitive, "fence": hold.fence},
        )


def _waiters(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    primitive = options["primitive"]
    for each in _known(views.waiters()):
        if (each.key, each.primitive) == (key, primitive) and options["place"] in (None, each.place):
            words = f"place {each.place} in the line of {primitive} {key}: {each.name}, {_ago(each.since)}, ticket {each.ticket}"
            yield Found(words, {"primitive": primitive, "ticket": each.ticket})


def _positions(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    line = views.line(key)
    for each in line.in_flight if line is not None else ():
        assert line is not None
        yield Found(
            f"position {each.position} of {key}: {each.name}, {each.state}; next is {line.next}, {line.waiting} in line, "
            f"epoch {line.epoch}",
            {"position": each.position, "epoch": line.epoch},
        )


def _lines(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    line = views.line(key)
    if line is not None:
        failed = f", first failed {line.first_failed}" if line.first_failed else ""
        failed += f", failed until {line.failed_until:%Y-%m-%d %H:%M:%S %Z}" if line.failed_until else ""
        yield Found(
            f"ordered line {key}: {line.waiting} in line, next is {line.next}, last completed {line.last_completed}{failed}, "
            f"epoch {line.epoch}",
            {"epoch": line.epoch},
        )


def _buckets(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    for each in _known(views.buckets()):
        if each.key == key:
            words = f"bucket {each.bucket} of {key}: run by {each.by}, {_ago(each.since)}"
            yield Found(words, {"bucket": each.bucket, "by": each.by})


def _slots(key: str, options: Mapping[str, Any]) -> Iterator[Found]:
    limit = next((each for each in _known(views.limits()) if each.key == key), None)
    for each in limit.planned if limit is not None else ():
        words = f"planned slot of {key}: {each.who}, {_ago(each.due)}, at {each.at:.3f}"
        yield Found(words, {"who": each.who, "at": each.at})


ACTS: dict[str, Act] = {
    "release": Act(
        help="Release the hold of this key, or one slot of it, after showing who has it.",
        exact=("fence",),
        find=_holds,
        do=operations.release_key,
        nothing="Nobody holds the {primitive} {key}.",
        changed="Owner changed",
        done="Released {key}; whoever is next in line has been woken.",
        warning="If its body still runs, another may run beside it from now on.",
    ),
    "drop": Act(
        help="Drop a waiter (--place, --ticket) from the line of this key.",
        exact=("ticket",),
        find=_waiters,
        do=operations.drop_waiter,
        nothing="Nobody like that stands in the line of {primitive} {key}.",
        changed="The line changed",
        done="Dropped from the line of {key}; its execution looks again by itself when it was due to.",
        warning="Its execution is not ended: it looks again by itself, and joins anew, last.",
    ),
    "skip": Act(
        help="Skip a position (--position) of this ordered line.",
        exact=("position", "epoch"),
        find=_positions,
        do=operations.skip_position,
        nothing="The ordered line {key} has no such position.",
        changed="The line moved",
        done="Skipped position {position} of {key}; whoever is next has been woken.",
        warning="Who had it arrives anew, last, if it still waits; if it runs, another may run beside it.",
    ),
    "reset": Act(
        help="Begin this ordered line afresh.",
        exact=("epoch",),
        find=_lines,
        do=operations.reset_line,
        nothing="Nobody is in the ordered line {key}.",
        changed="The line is another by now",
        done="The line {key} begins afresh; whoever waited in it has been woken.",
        warning="Whoever waits in it arrives anew; if one runs, another may run beside it.",
    ),
    "clear": Act(
        help="Free a marked bucket (--bucket) of this period.",
        exact=("bucket", "by"),
        find=_buckets,
        do=operations.clear_period,
        nothing="The period {key} has no such marked bucket.",
        changed="The mark is another's by now",
        done="{bucket} of {key} is free again.",
        warning="Whoever comes next in it runs once more.",
    ),
    "forget": Act(
        help="Give a planned slot (--who) of this rate limit back.",
        exact=("who", "at"),
        find=_slots,
        do=operations.forget_slot,
        nothing="Nobody like that has a planned slot of the rate limit {key}.",
        changed="The slot moved",
        done="The slot of {key} was given back.",
        warning="Its execution looks at the time it was given, and asks anew.",
    ),
}

_NAMING: dict[str, tuple[type, str]] = {
    "fence": (int, "release: only if this is still its fence."),
    "place": (int, "drop: who stands at this place."),
    "ticket": (int, "drop: who stands there with this ticket."),
    "position": (int, "skip: this position."),
    "epoch": (int, "skip, reset: only if it is still that line."),
    "bucket": (str, "clear: this bucket."),
    "by": (str, "clear: only if this one marked it."),
    "who": (str, "forget: whose slot."),
    "at": (float, "forget: only if it is still at this time."),
}


def add_arguments(parser: CommandParser) -> None:
    """An option for each act, and those that name what it is about."""
    acts = parser.add_mutually_exclusive_group()
    for name, act in ACTS.items():
        acts.add_argument(f"--{name}", metavar="KEY", help=act.help)
    parser.add_argument("--primitive", default="lock", choices=("lock", "semaphore"), help="release, drop: of the key.")
    for name, (kind, words) in _NAMING.items():
        parser.add_argument(f"--{name}", type=kind, help=words)
    parser.add_argument("--reason", default="", help="Why, for the trace. Asked for when it is missing.")
    parser.add_argument(
        "--yes", action="store_true", help="Do not ask; what was looked at, and why, must be named then."
    )


def asked_for(options: Mapping[str, Any]) -> str | None:
    """Which act the command line asks for."""
    return next((name for name in ACTS if options[name] is not None), None)


def perform(name: str, console: Console, options: Mapping[str, Any]) -> None:
    """Find it, ask, do it."""
    act, key = ACTS[name], options[name]
    missing = [f"--{each}" for each in act.exact if options[each] is None] + ([] if options["reason"] else ["--reason"])
    if options["yes"] and missing:
        raise CommandError(
            f"--yes needs {' and '.join(missing)}: without asking, only what was looked at may be changed, and it says why."
        )
    found = _choose(act, key, options)
    _refuse_changed(act, key, found, options)
    reason = options["reason"]
    if not options["yes"]:
        console.line(f"{found.words}.")
        console.line(act.warning)
        if input(f"{name.capitalize()} it? Type the key to confirm: ").strip() != key:
            raise CommandError(f"Not done: {key} is as it was.")
        reason = reason or input("Why, for the trace: ").strip()
        if not reason:
            raise CommandError(
                f"Not done: it needs a reason, for those who read the trace later (--reason). {key} is as it was."
            )
    if not act.do(key, **found.named, reason=reason, actor=ACTOR):
        raise CommandError(f"{act.changed}: {key} is not as it was shown any more. Nothing was done.")
    if options["json"]:
        console.json({"key": key, **found.named, "released" if name == "release" else "done": True})
    else:
        console.line(act.done.format(key=key, **found.named))


def _choose(act: Act, key: str, options: Mapping[str, Any]) -> Found:
    """The one that the command line names; of several that it could mean, none."""
    every = list(act.find(key, options))
    named = {each: options[each] for each in act.exact if options[each] is not None}
    fits = [each for each in every if all(_same(each.named[name], value) for name, value in named.items())]
    if len(fits) == 1 or (len(every) == 1 and not fits):
        return (fits or every)[0]
    if not every or not fits:
        words = act.nothing.format(key=key, primitive=options["primitive"])
        raise CommandError(f"{words} `manage.py coordination` lists what there is.")
    listed = "".join(f"\n  {each.words}" for each in fits[:20])
    raise CommandError(
        f"{len(fits)} could be meant; say which with {' '.join(f'--{each}' for each in act.exact)}:{listed}"
    )


def _refuse_changed(act: Act, key: str, found: Found, options: Mapping[str, Any]) -> None:
    for name in act.exact:
        if options[name] is not None and not _same(found.named[name], options[name]):
            raise CommandError(f"{act.changed}: {found.words} now, not {name} {options[name]}. Nothing was done.")


def _known(found: views.Live[Row]) -> tuple[Row, ...]:
    """Its rows; who acts must not take an unreachable Redis for an empty one."""
    if found.notice:
        raise CoordinationUnavailable(found.notice)
    return found.rows


def _same(one: Any, other: Any) -> bool:
    return abs(one - other) < 0.001 if isinstance(one, float) else bool(one == other)


def _ago(moment: Any) -> str:
    if moment is None:
        return "since unknown"
    passed = (timezone.now() - moment).total_seconds()
    return f"{views.span(passed)} ago" if passed >= 0 else f"in {views.span(-passed)}"
