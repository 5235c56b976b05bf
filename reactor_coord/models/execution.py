"""One run of a reactor: a root, or a composed child under it.

A root carries the lease under which its whole tree is written; a child never has one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from reactor_coord.engine.records import Failure, ParkedHold, Wait, holds_of
from reactor_coord.engine.states import LEASED, TERMINAL, WAITING, ExecutionStatus, Mode, ParkKind, is_terminal
from reactor_coord.models.choices import choices, one_of, values
from reactor_coord.storage.ids import uuid7
from reactor_coord.storage.verbs import verbs

CLAIMABLE = values({*WAITING, ExecutionStatus.ROLLING_BACK})
"""The statuses in which a row without a lease may be claimed."""


class Execution(models.Model):
    """One run of a reactor. Its verbs act at once; its columns are written by `storage.store` alone."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    reactor = models.CharField(max_length=255, help_text="Dotted path of the reactor class.")
    label = models.CharField(max_length=255, blank=True, default="", help_text="The class's own name.")
    fingerprint = models.CharField(
        max_length=64, blank=True, default="", help_text="Of the definition it started with."
    )
    status = models.CharField(max_length=20, choices=choices(ExecutionStatus), default=ExecutionStatus.READY.value)
    mode = models.CharField(max_length=10, choices=choices(Mode), default=Mode.WORKER.value)
    inputs = models.JSONField(default=dict, blank=True)
    result = models.JSONField(null=True, blank=True)
    failure = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")

    root = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="tree")
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="children")
    parent_step = models.CharField(max_length=255, blank=True, default="")
    element_index = models.IntegerField(null=True, blank=True)

    idempotency_key = models.CharField(max_length=255, null=True, blank=True)
    queue = models.CharField(max_length=255, blank=True, default="")
    tags = models.JSONField(default=dict, blank=True)
    trace_context = models.JSONField(default=dict, blank=True, help_text="Of what started it, W3C.")

    lease_token = models.CharField(max_length=64, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=255, blank=True, default="", help_text="Who claimed it last.")
    workers_lost = models.IntegerField(default=0, help_text="Deaths not yet attributed to a step.")
    current_step = models.CharField(
        max_length=300,
        blank=True,
        default="",
        help_text="`execution id/step` that the process with the lease may be in.",
    )
    keys = models.JSONField(default=dict, blank=True, help_text="Keys its reactor asked for, by primitive.")
    wake_requested = models.BooleanField(default=False)
    cancel_requested = models.BooleanField(default=False)
    cancel_reason = models.TextField(blank=True, default="")
    cancel_as_it_stands = models.BooleanField(default=False, help_text="Cancelled, or to be, with nothing undone.")

    resume_at = models.DateTimeField(null=True, blank=True, help_text="When the sweep looks, if nothing else did.")
    looks = models.IntegerField(default=0, help_text="Messages the sweep sent without effect.")
    park_kind = models.CharField(max_length=20, choices=choices(ParkKind), blank=True, default="")
    waiting_on = models.JSONField(null=True, blank=True)
    waiting_key = models.CharField(max_length=255, blank=True, default="", help_text="Key of waiting_on, to search by.")
    holds_kept = models.JSONField(default=list, blank=True)
    admitted_at = models.DateTimeField(null=True, blank=True, help_text="When it passed its reactor's own gates.")
    completed_count = models.IntegerField(default=0)

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        # Ids grow with time, so this is newest first on the primary key's own index.
        ordering: ClassVar = ["-id"]
        permissions: ClassVar = [
            ("operate_execution", "Can retry, resume, undo and cancel executions"),
            ("release_hold", "Can release holds"),
        ]
        constraints: ClassVar = [
            one_of("status", ExecutionStatus, name="rc_execution_status"),
            one_of("mode", Mode, name="rc_execution_mode"),
            one_of("park_kind", ParkKind, name="rc_execution_park_kind", blank=True),
            models.CheckConstraint(
                condition=Q(lease_token="") | Q(status__in=values(LEASED)), name="rc_execution_lease_status"
            ),
            models.UniqueConstraint(
                fields=["reactor", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="rc_execution_idempotency",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["resume_at"], condition=Q(status__in=CLAIMABLE, lease_token=""), name="rc_execution_due"
            ),
            models.Index(fields=["lease_expires_at"], condition=~Q(lease_token=""), name="rc_execution_lease"),
            models.Index(fields=["waiting_key"], condition=~Q(waiting_key=""), name="rc_execution_waiting"),
            models.Index(
                fields=["finished_at"], condition=Q(status__in=values(TERMINAL)), name="rc_execution_finished"
            ),
            models.Index(  # else each element that ends would read all of its siblings to find the next
                fields=["parent", "parent_step", "element_index"],
                condition=Q(status=ExecutionStatus.READY.value, resume_at__isnull=True, started_at__isnull=True),
                name="rc_execution_unbegun",
            ),
            models.Index(fields=["status", "-id"], name="rc_execution_status_id"),
            models.Index(fields=["reactor", "-id"], name="rc_execution_reactor_id"),
        ]

    def __str__(self) -> str:
        return f"{self.label or self.reactor} {self.pk} ({self.get_status_display()})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save; a row that names no root is its own."""
        if self.root_id is None:
            self.root_id = self.pk
        super().save(*args, **kwargs)

    @property
    def is_root(self) -> bool:
        """Whether it was started by somebody, not by another execution."""
        return self.root_id in (None, self.pk)

    @property
    def is_terminal(self) -> bool:
        """Whether it is over."""
        return is_terminal(self.status)

    @property
    def why_failed(self) -> Failure | None:
        """Why it failed, or is rolling back; None of one that did not fail."""
        return Failure.from_json(self.failure) if self.failure else None

    @property
    def waits_on(self) -> Wait | None:
        """What it waits on while it is parked or paused, as it was recorded at its last look."""
        return Wait.from_json(self.waiting_on) if self.waiting_on else None

    @property
    def parked_holds(self) -> tuple[ParkedHold, ...]:
        """What it keeps while it is parked, or until a worker takes it up."""
        return holds_of(self.holds_kept)

    @property
    def has_begun(self) -> bool:
        """Whether a process has worked on it: one did and wrote so, or one died before it could."""
        return self.started_at is not None or self.workers_lost > 0

    @property
    def has_turned_back(self) -> bool:
        """Whether its way forward has ended in a failure, a cancellation or an undo: taken up again, it rolls back on."""
        return self.failure is not None or self.cancel_requested or bool(self.cancel_reason)

    def resume(self, payload: Any = None) -> Any:
        """Answer the interrupt that it is paused at, or take up again what was aborted."""
        return self._act(verbs().resume(self, payload=payload))

    def retry(self, from_step: str | None = None) -> Any:
        """Run it again from its failed step, or from an earlier one."""
        return self._act(verbs().retry(self, from_step=from_step))

    def undo(self) -> Any:
        """Undo what it did, or only what an earlier rollback could not."""
        return self._act(verbs().undo(self))

    def close(self, reason: str) -> Any:
        """Count its incomplete rollback as dealt with by hand: what is left undone is not tried again, and it may be retried."""
        return self._act(verbs().close(self, reason=reason))

    def cancel(self, reason: str = "", *, rollback: bool = True) -> Any:
        """Stop it and roll it back; with `rollback=False` what it did stands."""
        return self._act(verbs().cancel(self, reason=reason, rollback=rollback))

    def _act(self, answer: Any) -> Any:
        self.refresh_from_db()
        return answer
