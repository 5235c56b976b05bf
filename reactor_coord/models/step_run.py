"""How one step of one execution stands, over all its attempts."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from reactor_coord.engine.records import ParkedHold, StepError, StepRollbackFailure, holds_of
from reactor_coord.engine.states import StepStatus
from reactor_coord.models.choices import choices, one_of
from reactor_coord.models.execution import Execution


class StepRun(models.Model):
    """One step of one execution; written with the execution's checkpoint, one row a step."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="step_runs")
    step = models.CharField(max_length=255)
    first_name = models.CharField(
        max_length=255, blank=True, default="", help_text="The name under which it first ran, if it was renamed since."
    )
    kind = models.CharField(max_length=20, blank=True, default="step")
    status = models.CharField(max_length=20, choices=choices(StepStatus), default=StepStatus.PENDING.value)
    attempts = models.IntegerField(default=0, help_text="Attempts whose body began.")
    contention_attempts = models.IntegerField(default=0)
    workers_lost = models.IntegerField(default=0)
    arguments = models.JSONField(null=True, blank=True)
    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")
    correlation_id = models.CharField(max_length=255, blank=True, default="")
    completion_order = models.IntegerField(null=True, blank=True)
    rollback_failure = models.JSONField(null=True, blank=True)
    coordination = models.JSONField(default=list, blank=True)
    keys = models.JSONField(default=dict, blank=True, help_text="Keys it asked for when it began, by primitive.")
    source_cursor = models.JSONField(
        null=True, blank=True, help_text="Of a map: how many elements it has written, and where its source goes on."
    )
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["execution_id", "id"]
        constraints: ClassVar = [
            one_of("status", StepStatus, name="rc_step_run_status"),
            models.UniqueConstraint(fields=["execution", "step"], name="rc_step_run_step"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["correlation_id"], condition=~models.Q(correlation_id=""), name="rc_step_run_correlation"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step} of {self.execution_id} ({self.get_status_display()})"

    @property
    def why_failed(self) -> StepError | None:
        """Why its last attempt failed; None where none has."""
        return StepError.from_json(self.error) if self.error else None

    @property
    def is_contained(self) -> bool:
        """Whether it failed and its execution went on behind it (`fails_parent=False`)."""
        return self.status == StepStatus.FAILED and self.completion_order is not None

    @property
    def recorded_holds(self) -> tuple[ParkedHold, ...]:
        """What it holds, or held around its last attempt."""
        return holds_of(self.coordination)

    @property
    def left_undone(self) -> StepRollbackFailure | None:
        """What rollback could not clean up of it; None where nothing is left, or rollback has not come to it."""
        return StepRollbackFailure.from_json(self.rollback_failure) if self.rollback_failure else None
