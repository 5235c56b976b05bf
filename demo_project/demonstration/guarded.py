"""A mail a day: the guard refuses the second, and it refuses as well who waited while the first was being sent."""

from __future__ import annotations

from django.utils import timezone

from demo_project.demonstration import sabotage
from demo_project.demonstration.claims import claim
from demo_project.demonstration.stage import Stage, finished, step_run
from demo_project.mailing.models import SentMail
from demo_project.mailing.reactors import Newsletter
from reactor_coord import ExecutionHandle, Outcome
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

AT_ONCE = 5
PACE_SECONDS = 1.0
REFUSAL = "Prevent spamming"
PROMISE = "one mail a day to an address: the guard refuses the second, before it begins"


def show(stage: Stage) -> None:
    """Send one after the other, then several at once, and count what went out. Raises ClaimBroken.

    Once more, to other addresses, where midnight fell in between: then a second mail is right.
    """
    for attempt in (stage.label, f"{stage.label}-again"):
        day = timezone.localdate()
        if _show(stage, f"ann-{attempt}@example.org", f"bob-{attempt}@example.org", day) or attempt != stage.label:
            return


def _show(stage: Stage, one: str, other: str, day: object) -> bool:
    first, second = _end(stage, _send(stage, one)), _end(stage, _send(stage, one))
    rush = [_send(stage, other, pace=PACE_SECONDS)]
    stage.until(lambda: stage.mark("begin", "mail", rush[0].id), "the body of the first mail")
    rush += [_send(stage, other) for _ in range(AT_ONCE - 1)]
    rows = [_end(stage, handle) for handle in rush]
    sabotage.mail(one)
    if timezone.localdate() != day:
        return False
    check(one, first, [second])
    stage.screen.say(f'two mails to {one}: one sent; the second was refused by its guard: "{REFUSAL}", nothing to undo')
    check(other, rows[0], rows[1:])
    waited = sum(step_run(row.pk, "send").contention_attempts > 0 for row in rows[1:])
    stage.screen.say(
        f"{AT_ONCE} at once to {other}: one sent; {waited} waited for its lock, were asked again, and refused"
    )
    stage.browse.append(("refused by its guard", rows[-1].pk))
    return True


def check(email: str, sent: Execution, refused: list[Execution]) -> None:
    """Whether one mail went out, and the others failed at their guard, never begun. Raises ClaimBroken."""
    claim(sent.status == ExecutionStatus.COMPLETED, f"the first mail to {email} ended {sent.status}: {sent.failure}")
    for row in refused:
        failure = Outcome.of_row(row).failure
        said = f"{failure.step}: {failure.message}" if failure else f"{row.status}"
        claim(said == f"send: {REFUSAL}", f"a further mail to {email} was not refused by its guard: {said}")
        claim(step_run(row.pk, "send").attempts == 0, f"the body of a refused mail to {email} began")
    out = SentMail.objects.filter(email=email).count()
    claim(out == 1, f"{email} has had {out} mails today instead of one")


def _send(stage: Stage, email: str, pace: float = 0.0) -> ExecutionHandle:
    return Newsletter.options(tags=stage.tags()).enqueue(email=email, pace=pace)


def _end(stage: Stage, handle: ExecutionHandle) -> Execution:
    identity = handle.id
    return stage.until(lambda: finished(identity), f"the end of {identity}")
