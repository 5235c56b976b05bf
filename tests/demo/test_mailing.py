"""The guard's story, tested with what a user has: the public API and `reactor_coord.testing`."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.db import connection

from demo_project.demonstration import guarded, sabotage
from demo_project.demonstration.claims import ClaimBroken
from demo_project.mailing.email_service import EmailService
from demo_project.mailing.models import SentMail
from demo_project.mailing.reactors import Newsletter, SendEmail
from reactor_coord import ReactorFailed
from reactor_coord.errors import InputValidationError
from reactor_coord.testing import assert_ran, bare, drain, hold
from reactor_coord.testing.dispatches import Dispatches

pytestmark = pytest.mark.django_db(transaction=True)

ANN = "ann@example.org"


def test_the_first_mail_of_the_day_is_sent_and_the_second_is_refused() -> None:
    first = Newsletter.run(email=ANN)
    assert first.succeeded
    assert_ran(first, "send")
    second = Newsletter.run(email=ANN)
    assert second.failed
    assert second.failure is not None
    assert (second.failure.step, second.failure.message) == ("send", "Prevent spamming")
    assert second.failure.rollback_failures == ()
    assert len(mail.outbox) == SentMail.objects.count() == 1
    assert Newsletter.run(email="bob@example.org").succeeded


def test_yesterdays_mail_refuses_nothing() -> None:
    Newsletter.run(email=ANN)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mailing_sentmail SET at = '2001-01-01 12:00:00+00:00'")
    assert not EmailService.sent_today(ANN)
    assert Newsletter.run(email=ANN).succeeded


def test_of_two_that_wait_for_one_address_the_second_finds_that_the_first_was_sent(
    reactor_dispatches: Dispatches,
) -> None:
    with hold(f"mail:{ANN}"):
        both = [Newsletter.enqueue(email=ANN) for _ in range(2)]
        drain()
        assert [each.status for each in both] == ["parked", "parked"]
    drain(timeout=10)
    assert [each.status for each in both] == ["completed", "failed"]
    assert len(mail.outbox) == 1


def test_the_step_by_itself_is_guarded_too() -> None:
    SendEmail.call(email=ANN)
    with pytest.raises(ReactorFailed, match="Prevent spamming"):
        SendEmail.call(email=ANN)
    assert len(mail.outbox) == 1


def test_an_address_that_is_none_is_refused_before_the_guard_is_asked() -> None:
    with pytest.raises(InputValidationError):
        bare(SendEmail, email="nobody")
    assert Newsletter.run(email="nobody").failed


def test_a_mail_too_many_breaks_the_claim(monkeypatch: pytest.MonkeyPatch, reactor_dispatches: Any) -> None:
    sent, refused = Newsletter.run(email=ANN), Newsletter.run(email=ANN)
    guarded.check(ANN, sent.execution, [refused.execution])
    monkeypatch.setenv("DEMO_SABOTAGE", "mail")
    sabotage.mail(ANN)
    with pytest.raises(ClaimBroken, match="has had 2 mails today"):
        guarded.check(ANN, sent.execution, [refused.execution])


def test_a_mail_that_was_not_refused_breaks_the_claim() -> None:
    sent = Newsletter.run(email=ANN)
    with pytest.raises(ClaimBroken, match="was not refused by its guard"):
        guarded.check(ANN, sent.execution, [sent.execution])
