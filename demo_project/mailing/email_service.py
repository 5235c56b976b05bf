"""The service that sends mail and remembers it. It knows nothing of `reactor_coord`."""

from __future__ import annotations

from django.core.mail import send_mail
from django.utils import timezone

from demo_project.mailing.models import SentMail


class EmailService:
    """Sends whatever it is asked to send: who asks has to know when it is enough."""

    @staticmethod
    def sent_today(email: str) -> bool:
        """Whether this address has had a mail today. One query."""
        midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
        return SentMail.objects.filter(email=email, at__gte=midnight).exists()

    @staticmethod
    def send(email: str, subject: str) -> int:
        """Send a mail; returns its number."""
        send_mail(subject, "There is something new in our shop.", "shop@example.com", [email])
        return SentMail.objects.create(email=email, subject=subject).pk
