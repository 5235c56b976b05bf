"""The history that Django's admin keeps: who did what by which surface, where the actor is a user of the project."""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth import get_user_model

from reactor_coord.models import Execution


def note(actor: object, row: Execution | None, key: str, words: str) -> None:
    """Add an entry for a user's act on a key: to the history of the execution concerned, or naming the key alone.

    Does nothing for an actor that is no user (a command, a system), or where the project has no admin.
    """
    if not apps.is_installed("django.contrib.admin") or not isinstance(actor, get_user_model()):
        return
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.create(
        user_id=actor.pk,
        content_type=ContentType.objects.get_for_model(Execution),
        object_id=str(row.pk) if row is not None else None,
        object_repr=(str(row) if row is not None else key)[:200],
        action_flag=CHANGE,
        change_message=words,
    )
