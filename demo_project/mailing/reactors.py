"""The workflow: `Newsletter`, whose mail is refused where one was sent today."""

from __future__ import annotations

import time

from demo_project.mailing.email_service import EmailService
from demo_project.payments import journal
from reactor_coord import Input, Reactor, Step, step, with_lock


@with_lock("mail:{email}", ttl=30)
class SendEmail(Step):
    """Send a mail, but no second one on a day.

    The guard is asked before the lock and, when the step had to wait for it, once more under it: of two that come at once,
    the second then finds that the first was sent.
    """

    email = Input(str, pattern=r"[^@\s]+@[^@\s]+")
    pace = Input(float, default=0.0, ge=0, le=10)

    def guard(self) -> None:
        if EmailService.sent_today(self.email):
            self.fail("Prevent spamming")
        self.succeed()

    def run(self) -> int:
        with journal.witnessed("mail", str(self.context.execution_id), 0):
            time.sleep(self.pace)
            return EmailService.send(self.email, "News of the day")


class Newsletter(Reactor):
    """One mail to one address. `pace` (seconds) makes the sending last, so that one can watch what waits."""

    email = Input(str, max_length=200)
    pace = Input(float, default=0.0, ge=0, le=10)

    send = step(SendEmail)
