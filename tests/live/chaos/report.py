"""The enumeration as a table: one row a point, what is wrong with it below, and how to see that point again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.live.chaos.lane import Answer

HEAD = f"{'variant':<15} {'point':>5}  {'kind':<8} {'died before':<62} {'ended':<11} {'s':>5}"


def row(answer: Answer) -> str:
    """One point, with its violations."""
    where = answer.died_at or ("(nobody died)" if answer.point is None else "(never came to it)")
    number = "" if answer.point is None else str(answer.point)
    head = (
        f"{answer.variant:<15} {number:>5}  {answer.kind:<8} {where[:62]:<62} {answer.status:<11} "
        f"{answer.seconds:>5.1f}  {'VIOLATED' if answer.violations else 'ok'}"
    )
    return "\n".join([head, *(f"      {rule}: {what}" for rule, what in answer.violations)])


def again(answer: Answer) -> str:
    """The command that plays this point again."""
    return f"python -m tests.live.chaos --variant {answer.variant} --only {answer.point}"


def summary(answers: Sequence[Answer]) -> str:
    """How many points, and which rules were violated how often; each violating point with its command."""
    bad = [answer for answer in answers if answer.violations]
    rules = Counter(rule for answer in bad for rule in {rule for rule, _ in answer.violations})
    missed = sum(answer.point is not None and not answer.died_at for answer in answers)
    lines = [f"{len(answers)} points, {len(bad)} with violations, {missed} whose effect was not reached"]
    lines += [f"  {count:>4} points  {rule}" for rule, count in rules.most_common()]
    lines += [f"  {again(answer)}    journal and log: {answer.directory}" for answer in bad]
    return "\n".join(lines)
