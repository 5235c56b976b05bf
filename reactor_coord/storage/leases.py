"""Who may run an execution: claims, their renewal, and the mark that a wake leaves on a row somebody runs.

Each is one conditional statement, so that of any number who try at once exactly one succeeds.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import connections
from django.db.models import F

from reactor_coord.conf import settings
from reactor_coord.engine import transitions
from reactor_coord.engine.states import LEASED
from reactor_coord.models import Execution
from reactor_coord.models.choices import values
from reactor_coord.storage import clock
from reactor_coord.storage.columns import clean_text
from reactor_coord.storage.transitions import apply_all


def claim(execution_id: UUID | str, *, worker: str) -> Execution | None:
    """Take a ready, parked, or deserted rolling-back root for this worker, under a fresh lease; `None` if it is not to be had.

    A ready or parked one becomes running, a rolling-back one stays so. The mark of an earlier wake is cleared: this claim
    answers it. What it waited on is still in the row, and `started_at` untouched, for the runner to read and change.
    """
    using = clock.alias()
    token = uuid4().hex
    if clock.is_postgresql(using):
        return _claim_returning(using, execution_id, token, clean_text(worker)[:255])
    free = Execution.objects.using(using).filter(pk=execution_id, root_id=F("id"), lease_token="")
    if not apply_all(free, transitions.claim(token, clock.now(using, plus=settings().LEASE_TTL), worker)):
        return None
    return Execution.objects.using(using).filter(pk=execution_id, lease_token=token).first()


_CLAIM_SQL = """
UPDATE {table} SET
    status = CASE status {targets} END,
    lease_token = %s,
    lease_expires_at = clock_timestamp() + %s * interval '1 second',
    worker = %s,
    wake_requested = false,
    looks = 0,
    updated_at = clock_timestamp()
WHERE id = %s AND root_id = id AND lease_token = '' AND status IN ({sources})
RETURNING *
"""


def _claim_returning(using: str, execution_id: UUID | str, token: str, worker: str) -> Execution | None:
    claims = transitions.TABLE[transitions.Move.CLAIM]
    statement = _CLAIM_SQL.format(
        table=connections[using].ops.quote_name(Execution._meta.db_table),
        targets=" ".join(f"WHEN '{source}' THEN '{target}'" for source, target in claims.items()),
        sources=", ".join(f"'{source}'" for source in claims),
    )
    parameters = (token, settings().LEASE_TTL, worker, str(execution_id))
    rows = Execution.objects.using(using).raw(statement, parameters)
    claimed = next(iter(rows), None)
    if claimed is not None:
        clock.heard(using, claimed.updated_at)
    return claimed


def request_wake(execution_id: UUID | str) -> bool:
    """Leave word on a row that somebody runs; its park will answer. False when nobody does.

    Of `claim` then `request_wake` both failing, the row parked in between (try once more) or is over.
    """
    using = clock.alias()
    leased = Execution.objects.using(using).filter(pk=execution_id, status__in=values(LEASED))
    return bool(leased.exclude(lease_token="").update(wake_requested=True))


def renew(execution_id: UUID | str, token: str, ttl: float | None = None) -> bool | None:
    """Give the lease another `ttl` seconds. False: it is somebody else's, or over. `None`: the row cannot be seen.

    The last is the case of an execution started inside a transaction that is still open on another connection: not lost,
    not to be renewed yet. Database errors are the caller's to ride out.
    """
    using = clock.alias()
    rows = Execution.objects.using(using).filter(pk=execution_id)
    expires = clock.now(using, plus=settings().LEASE_TTL if ttl is None else ttl)
    if rows.filter(lease_token=token).update(lease_expires_at=expires):
        return True
    return False if rows.exists() else None
