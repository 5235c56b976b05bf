"""What all our commands share: our errors become messages with a remedy and a non-zero exit, never a traceback."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.db.models import CharField
from django.db.models.functions import Cast

from reactor_coord.errors import CoordinationUnavailable, InputValidationError, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.operations import views

from .console import Console


class OperatorCommand(BaseCommand):
    """Subclasses write `perform(console, **options)`."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, and say in one sentence what went wrong if it did."""
        console = Console(self.stdout, colour=False if options.get("no_color") else None)  # type: ignore[arg-type]
        try:
            self.perform(console, **options)
        except ReactorCoordError as error:
            raise CommandError(describe(error)) from error
        except DatabaseError as error:
            raise CommandError(
                f"The database could not be used: {views.mask_secrets(str(error).strip())}. "
                "Is it reachable (DATABASES), and has `manage.py migrate` been run?"
            ) from error
        except KeyboardInterrupt:
            raise CommandError("Interrupted.", returncode=130) from None

    def perform(self, console: Console, **options: Any) -> None:
        """What the command does."""
        raise NotImplementedError


def describe(error: ReactorCoordError) -> str:
    """The error's own sentence, with what to do where the error cannot know it."""
    text = views.mask_secrets(str(error))
    if isinstance(error, InputValidationError):
        problems = "".join(f"\n  {name}: {'; '.join(texts)}" for name, texts in error.fields.items())
        return f"Wrong input for {error.owner or 'the reactor'}:{problems}"
    if isinstance(error, CoordinationUnavailable) and "REDIS_ALIAS" not in text:
        return f"{text} Check that Redis runs and that CACHES[REACTOR_COORD['REDIS_ALIAS']] names it."
    return text


def find_execution(name: str) -> Execution:
    """By id, or by the end of one as lists show it. CommandError says when there is none, or more than one."""
    name = name.strip().lower()
    try:
        found = list(Execution.objects.filter(pk=UUID(name))[:1])
    except ValueError:
        if not re.fullmatch(r"[0-9a-f]{4,12}", name):
            raise CommandError(f"{name!r} is not an execution's id. `manage.py executions` lists them.") from None
        found = list(
            Execution.objects.alias(id_text=Cast("id", CharField())).filter(id_text__endswith=name).order_by("-id")[:5]
        )
    if not found:
        raise CommandError(
            f"There is no execution {name}. It may have been pruned; `manage.py executions` lists what there is."
        )
    if len(found) > 1:
        raise CommandError(
            f"{name} is the end of several ids: {', '.join(str(each.pk) for each in found)}. Write more of it."
        )
    return found[0]


def as_json(value: Any) -> Any:
    """A read model as plain JSON, properties that people read included."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value
