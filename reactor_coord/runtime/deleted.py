"""A row that is deleted while it waits, or keeps keys: what it has in Redis is given up when the deletion commits.

What a process runs is left to that process: it finds its lease gone, and gives back what it holds.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from django.db import transaction
from django.db.models.signals import pre_delete

from reactor_coord.engine.states import is_terminal
from reactor_coord.models import Execution
from reactor_coord.runtime import finish, units


def _before_delete(sender: object, instance: Execution, using: str, **_: Any) -> None:
    """Note what the row says it waits on and keeps, while that can be read."""
    row = copy(instance)  # Django takes the id from the other when it is gone
    if deferred := row.get_deferred_fields():
        row.refresh_from_db(using=using, fields=deferred)
    if not is_terminal(row.status) and row.is_root and not row.lease_token:
        transaction.on_commit(lambda: _give_up(row), using=using, robust=True)


def _give_up(row: Execution) -> None:
    finish.leave_waited(row, row.waits_on)
    finish.let_go_of_kept(row, row.parked_holds)
    if not row.has_begun:
        finish.leave_reserved(row)
    units.report(row)


def connect() -> None:
    """Look at every execution that is deleted from now on. Connecting again changes nothing."""
    pre_delete.connect(_before_delete, sender=Execution, dispatch_uid="reactor_coord.runtime.deleted")
