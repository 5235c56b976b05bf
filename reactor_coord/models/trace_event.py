"""What happened, in the order in which it was written down. Append only."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from reactor_coord.engine.states import EventKind
from reactor_coord.models.choices import choices
from reactor_coord.models.execution import Execution


class TraceEvent(models.Model):
    """One event of one execution. `root_id` gathers a whole tree's, `id` orders them."""

    id = models.BigAutoField(primary_key=True)
    root_id = models.UUIDField()
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="trace")
    at = models.DateTimeField()
    kind = models.CharField(max_length=30, choices=choices(EventKind))
    step = models.CharField(max_length=255, blank=True, default="")
    primitive = models.CharField(max_length=30, blank=True, default="")
    key = models.TextField(blank=True, default="")
    data = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering: ClassVar = ["id"]
        indexes: ClassVar = [models.Index(fields=["root_id", "id"], name="rc_trace_root")]

    def __str__(self) -> str:
        subject = " ".join(part for part in (self.step, self.primitive, self.key) if part)
        return f"{self.get_kind_display()} {subject}".rstrip()
